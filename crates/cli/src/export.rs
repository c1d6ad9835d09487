//! `meshwork export`: a trained language model in the files of Hugging Face.

use crate::args::ExportArgs;
use crate::failure::Failure;
use crate::language_model::LanguageModel;
use crate::samples::TOKENIZER;
use meshwork::hugging_face::{self, SaveOptions};
use meshwork::nn::Module;
use std::path::Path;

/// How `transformers` shall read the tokenizer.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// Writes the newest weights of a run, and what its tokens are.
pub fn run(args: &ExportArgs) -> Result<(), Failure> {
    let LanguageModel { model, tokenizer, .. } = LanguageModel::of_run(&args.checkpoint, args.ema)?;
    let options = SaveOptions { max_shard_bytes: args.max_shard_bytes, end_of_text: tokenizer.end_of_text() };
    hugging_face::save(&model, &args.to, &options).map_err(|e| Failure::from(e).about("--to"))?;
    // Whatever the class of the model, its tokens are what tokenizer.json says.
    let config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.config().context,
        "clean_up_tokenization_spaces": false,
    });
    write(&args.to.join(TOKENIZER), &tokenizer.to_tokenizer_json())?;
    write(&args.to.join(TOKENIZER_CONFIG), &format!("{config:#}\n"))?;
    println!("{} parameters written to {}", model.num_parameters(), args.to.display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| Failure::System(format!("--to: cannot write {}: {e}", path.display())))
}
