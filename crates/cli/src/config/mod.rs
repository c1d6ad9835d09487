//! Configuration files: the flags of `train` as keys of a TOML file.

mod tables;

use crate::args::Cli;
use crate::failure::Failure;
use crate::mistakes::{did_you_mean, in_words};
use clap::{Arg, CommandFactory};
use std::any::TypeId;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys of a file as flags, `--lr=0.1`, each checked by itself.
///
/// # Errors
/// With file and line: broken syntax, unknown keys, values of the wrong type or outside of what is allowed.
pub fn flags(path: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::Mistake(format!("--config: cannot read {}: {e}", path.display())))?;
    flags_of(&text, &path.display().to_string()).map_err(Failure::Mistake)
}

fn flags_of(text: &str, origin: &str) -> Result<Vec<String>, String> {
    let line = |byte: usize| 1 + text[..byte].matches('\n').count();
    let table = DeTable::parse(text).map_err(|e| {
        let place = e.span().map(|span| format!(", line {}", line(span.start))).unwrap_or_default();
        format!("{origin}{place}: {}", e.message().replace('\n', "; "))
    })?;
    let command = Cli::command();
    let train = command.find_subcommand("train").expect("there is a command train");
    let known: Vec<(&str, &Arg)> =
        train.get_arguments().filter_map(|a| Some((a.get_long()?, a))).filter(|(name, _)| *name != "config").collect();

    let mut found: Vec<(usize, String)> = Vec::new();
    for (key, value) in table.get_ref() {
        let (start, key) = (key.span().start, key.get_ref().as_ref());
        let problem = |text: String| format!("{origin}, line {}: {text}", line(start));
        let Some((_, arg)) = known.iter().find(|(name, _)| *name == key) else {
            let names: Vec<String> = known.iter().map(|(name, _)| name.to_string()).collect();
            return Err(problem(format!("there is no key {key:?}{}", did_you_mean(key, &names))));
        };
        let at = |(byte, text): (usize, String)| format!("{origin}, line {}: {text}", line(byte));
        let given = match (key, value.get_ref()) {
            ("parallel", DeValue::Table(table)) => vec![tables::parallel(start, table).map_err(at)?],
            ("place", DeValue::Table(table)) => tables::place(table).map_err(at)?,
            ("place", other) => {
                let wanted = "a table, such as [place] with \"*.fc1.weight\" = { tensor = \"split(0)\" }";
                return Err(problem(format!("place must be {wanted}, not {}", type_name(other))));
            }
            ("metrics", DeValue::Array(paths)) => {
                let flag = |path: &Spanned<DeValue<'_>>| {
                    let text =
                        text_of(path.get_ref(), arg).map_err(|wanted| problem(format!("metrics must be {wanted}")))?;
                    Ok((path.span().start, format!("--metrics={text}")))
                };
                paths.iter().map(flag).collect::<Result<_, String>>()?
            }
            (_, value) => {
                let text = text_of(value, arg).map_err(|wanted| problem(format!("{key} must be {wanted}")))?;
                vec![(start, format!("--{key}={text}"))]
            }
        };
        for (start, flag) in given {
            let argv = ["meshwork", "train", &flag].map(String::from);
            if let Err(e) = Cli::command().try_get_matches_from(&argv) {
                return Err(at((start, in_words(&e, &argv).replacen("--", "", 1))));
            }
            found.push((start, flag));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, flag)| flag).collect())
}

/// A value as it would stand on the command line, or which type it should have.
fn text_of(value: &DeValue<'_>, arg: &Arg) -> Result<String, String> {
    let ty = arg.get_value_parser().type_id();
    let is = |other: TypeId| ty == other;
    match value {
        DeValue::Integer(n) if is(TypeId::of::<u64>()) || is(TypeId::of::<f64>()) => {
            let number = i128::from_str_radix(n.as_str(), n.radix());
            Ok(number.map_or_else(|_| n.to_string(), |n| n.to_string()))
        }
        DeValue::Float(x) if is(TypeId::of::<f64>()) => Ok(x.as_str().to_string()),
        DeValue::Boolean(b) if is(TypeId::of::<bool>()) => Ok(b.to_string()),
        DeValue::String(text)
            if ![TypeId::of::<u64>(), TypeId::of::<f64>(), TypeId::of::<bool>()].map(is).contains(&true) =>
        {
            Ok(text.to_string())
        }
        other => {
            let wanted = match () {
                () if is(TypeId::of::<u64>()) => "a whole number without quotes, such as 64".to_string(),
                () if is(TypeId::of::<f64>()) => "a number without quotes, such as 0.001".to_string(),
                () if is(TypeId::of::<bool>()) => "true or false".to_string(),
                () => {
                    let known: Vec<String> =
                        arg.get_possible_values().iter().map(|v| format!("{:?}", v.get_name())).collect();
                    if known.is_empty() { "text in quotes".to_string() } else { format!("one of {}", known.join(", ")) }
                }
            };
            Err(format!("{wanted}, not {}", type_name(other)))
        }
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::flags_of;

    fn error(text: &str) -> String {
        flags_of(text, "run.toml").unwrap_err()
    }

    #[test]
    fn keys_become_flags_in_the_order_of_the_file() {
        let text = "lr = 1\nbatch = 1_000\nseed = 0x10\ngamma = 5e-1\noptimizer = \"sgd\"\nnesterov = true\n";
        let flags = ["--lr=1", "--batch=1000", "--seed=16", "--gamma=5e-1", "--optimizer=sgd", "--nesterov=true"];
        assert_eq!(flags_of(text, "run.toml").unwrap(), flags);
    }

    #[test]
    fn mistakes_name_file_and_line() {
        assert_eq!(error("batchsize = 8"), "run.toml, line 1: there is no key \"batchsize\" (did you mean batch?)");
        assert_eq!(error("lr = 1\nbath = 8\n"), "run.toml, line 2: there is no key \"bath\" (did you mean batch?)");
        assert_eq!(
            error("weight_decay = 1"),
            "run.toml, line 1: there is no key \"weight_decay\" (did you mean weight-decay?)"
        );
        assert_eq!(
            error("\nlr = \"fast\""),
            "run.toml, line 2: lr must be a number without quotes, such as 0.001, not text"
        );
        assert_eq!(error("lr = -1"), "run.toml, line 1: lr: \"-1\" is not a number of at least 0, such as 0.0001");
        assert_eq!(
            error("batch = 1.5"),
            "run.toml, line 1: batch must be a whole number without quotes, such as 64, not a number with a fraction"
        );
        assert_eq!(
            error("batch = 0"),
            "run.toml, line 1: batch: \"0\" is not a whole number of at least 1, such as 64"
        );
        assert_eq!(
            error("optimizer = \"adma\""),
            "run.toml, line 1: optimizer: \"adma\" is not known (did you mean adam?); known are sgd, adam, adamw, rmsprop, adagrad, lars, lamb"
        );
        assert_eq!(
            error("order = 1"),
            "run.toml, line 1: order must be one of \"sequential\", \"shuffled\", not a whole number"
        );
        assert_eq!(error("nesterov = 1"), "run.toml, line 1: nesterov must be true or false, not a whole number");
        assert_eq!(
            error("[lr]\nx = 1"),
            "run.toml, line 1: lr must be a number without quotes, such as 0.001, not a table"
        );
        assert!(error("lr = 1\nlr = 2").starts_with("run.toml, line 2: "));
        assert!(error("lr = \n").starts_with("run.toml, line 1: "));
    }
}
