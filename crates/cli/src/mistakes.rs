//! What the argument parser refuses, in one clear sentence with the nearest right name.

use crate::args::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use meshwork::mesh::PlanError;
use std::error::Error;

/// What is wrong with the arguments, in words.
pub fn in_words(error: &clap::Error, argv: &[String]) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let strings = |kind| match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let given = context(ContextKind::InvalidArg);
    let name = plain(&given);
    let value = context(ContextKind::InvalidValue);
    let command = argv.get(1).map_or("", String::as_str);
    match error.kind() {
        ErrorKind::UnknownArgument if given.starts_with('-') => {
            let known = flags(command);
            format!("there is no flag {given}{}; see meshwork {command} --help", did_you_mean(&given, &known))
        }
        ErrorKind::UnknownArgument => format!("{given:?} is one name too many; see meshwork {command} --help"),
        ErrorKind::InvalidSubcommand => {
            let given = context(ContextKind::InvalidSubcommand);
            let known = commands();
            format!("there is no command {given:?}{}; known are {}", did_you_mean(&given, &known), known.join(", "))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("which command? Known are {}; see meshwork --help", commands().join(", "))
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{name} needs a value"),
        ErrorKind::InvalidValue => {
            let known = strings(ContextKind::ValidValue);
            format!("{name}: {value:?} is not known{}; known are {}", did_you_mean(&value, &known), known.join(", "))
        }
        ErrorKind::ValueValidation => {
            if let Some(problem) = error.source().and_then(|e| e.downcast_ref::<PlanError>()) {
                return format!("{name}: {problem}");
            }
            let wanted = error.source().map(|e| e.to_string()).unwrap_or_default();
            format!("{name}: {value:?} is not {wanted}")
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{command} needs {}; see meshwork {command} --help", plain(&given))
        }
        _ => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string()
        }
    }
}

/// `--lr <RATE>` as `--lr`, `[MODEL]` as `MODEL`.
fn plain(given: &str) -> String {
    let name = given.split([' ', '=']).next().unwrap_or_default();
    name.trim_matches(['[', ']', '<', '>']).to_string()
}

fn commands() -> Vec<String> {
    Cli::command().get_subcommands().map(|c| c.get_name().to_string()).collect()
}

/// The flags of a command, with their dashes.
fn flags(command: &str) -> Vec<String> {
    let cli = Cli::command();
    let command = cli.find_subcommand(command).unwrap_or(&cli);
    command.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| Some(format!("--{}", a.get_long()?))).collect()
}

/// ` (did you mean adam?)`, where one of the known names is near.
pub fn did_you_mean(given: &str, known: &[String]) -> String {
    nearest(given, known).map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}

fn nearest<'a>(given: &str, known: &'a [String]) -> Option<&'a str> {
    let given = given.to_lowercase().replace('_', "-");
    let bare = |name: &str| name.trim_start_matches('-').to_string();
    let near = known.iter().map(|name| (strsim::damerau_levenshtein(&given, name), name));
    let (distance, name) = near.min()?;
    if distance <= 1 + name.len() / 3 {
        return Some(name);
    }
    // `batchsize` is more than a slip away from `batch`, but begins with it.
    let begins = |name: &&String| bare(name).len() > 2 && bare(&given).starts_with(&bare(name));
    known.iter().filter(begins).max_by_key(|name| name.len()).map(String::as_str)
}
