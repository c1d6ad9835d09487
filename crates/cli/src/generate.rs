//! `meshwork generate`: text from a trained language model.

use crate::args::GenerateArgs;
use crate::failure::Failure;
use crate::language_model::LanguageModel;
use meshwork::Device;
use meshwork::generate::{Generator, Sampling};
use meshwork::tensor::autocast;
use std::io::Write;

/// Writes what follows a prompt, as it comes.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    if let Some(threads) = args.threads {
        let threads = usize::try_from(threads).unwrap_or(usize::MAX);
        meshwork::set_num_threads(threads).map_err(|e| Failure::Mistake(format!("--threads: {e}")))?;
    }
    let LanguageModel { model, precision, tokenizer } = LanguageModel::load(&args.checkpoint, args.ema)?;
    Device::cpus().map_err(Failure::mistake)?;

    let mut prompt = tokenizer.encode(&args.prompt).map_err(|e| Failure::Mistake(format!("--prompt: {e}")))?;
    if prompt.is_empty() {
        let beginning = tokenizer.end_of_text().ok_or_else(|| {
            Failure::mistake("--prompt: this model knows no beginning of a text; say at least one character")
        })?;
        prompt.push(beginning);
    }
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k.map(|k| usize::try_from(k).unwrap_or(usize::MAX)),
        top_p: args.top_p,
        seed: args.seed,
    };
    let mut text = tokenizer.stream();
    let write = |text: &str| {
        let mut out = std::io::stdout().lock();
        // That nobody reads any more is a reason to end.
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
    };
    write(&args.prompt);
    let length = usize::try_from(args.tokens).unwrap_or(usize::MAX);
    autocast(precision, || {
        for token in Generator::new(&model, &prompt, sampling).take(length) {
            if Some(token) == tokenizer.end_of_text() || !write(&text.push(token)) {
                break;
            }
        }
    });
    write(&text.finish());
    write("\n");
    Ok(())
}
