//! Settings of language models: their sizes, and how text becomes tokens.

use crate::failure::Failure;
use crate::values::*;
use clap::Args;
use meshwork::data::TokenizerChoice;
use meshwork::nn::TransformerConfig;
use meshwork::train::BuiltIn;
use std::path::PathBuf;

/// Flags for the sizes of a transformer.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Language models (gpt, llama)")]
pub struct SizeArgs {
    /// Blocks [default: 4]
    #[arg(long, value_name = "N", value_parser = count)]
    pub layers: Option<u64>,
    /// Features of a token between the blocks [default: 128]
    #[arg(long, value_name = "N", value_parser = count)]
    pub width: Option<u64>,
    /// Heads of queries, which divide the width [default: 4]
    #[arg(long, value_name = "N", value_parser = count)]
    pub heads: Option<u64>,
    /// Heads of keys and values, which divide those of queries [default: as many]
    #[arg(long, value_name = "N", value_parser = count)]
    pub kv_heads: Option<u64>,
    /// Tokens of a sequence [default: 128]
    #[arg(long, value_name = "N", value_parser = count)]
    pub context: Option<u64>,
    /// Part of the features that is dropped in training [default: 0]
    #[arg(long, value_name = "X", value_parser = part)]
    pub dropout: Option<f64>,
}

/// Flags of `train` for language models.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Language models (gpt, llama)")]
pub struct LanguageArgs {
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// How text becomes tokens: bytes, characters, or the path of a tokenizer.json [default: characters]
    #[arg(long, value_name = "NAME|PATH", value_parser = text)]
    pub tokenizer: Option<String>,
    /// Part of the text, at its end, that is not trained on [default: 0.1]
    #[arg(long, value_name = "X", value_parser = part)]
    pub validation: Option<f64>,
    /// Keep the tokens in a file for the next time
    #[arg(long, value_name = "FILE", value_parser = path)]
    pub token_cache: Option<PathBuf>,
}

/// The sizes, complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    pub layers: u64,
    pub width: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub context: u64,
    pub dropout: f64,
}

/// The settings that a run's result depends on, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Language {
    pub sizes: Sizes,
    pub tokenizer: String,
    pub validation: f64,
}

impl SizeArgs {
    /// The model of a name, with these sizes and so many tokens if it is a transformer.
    ///
    /// # Errors
    /// Sizes that do not go together, and those of a model that has its own.
    pub fn built_in(&self, name: ModelName, vocabulary: u64) -> Result<BuiltIn, Failure> {
        if let Some(flag) = self.given().next().filter(|_| !name.is_language()) {
            return Err(Failure::Mistake(format!("--{flag}: the model {} has sizes of its own", name_of(name))));
        }
        Sizes::complete(self)?.model(name, usize::try_from(vocabulary).unwrap_or(usize::MAX))
    }

    /// Which of the flags were given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("layers", self.layers.is_some()),
            ("width", self.width.is_some()),
            ("heads", self.heads.is_some()),
            ("kv-heads", self.kv_heads.is_some()),
            ("context", self.context.is_some()),
            ("dropout", self.dropout.is_some()),
        ];
        flags.into_iter().filter(|(_, given)| *given).map(|(name, _)| name)
    }
}

impl LanguageArgs {
    /// Which of the flags were given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("tokenizer", self.tokenizer.is_some()),
            ("validation", self.validation.is_some()),
            ("token-cache", self.token_cache.is_some()),
        ];
        self.sizes.given().chain(flags.into_iter().filter(|(_, given)| *given).map(|(name, _)| name))
    }
}

impl Sizes {
    /// Fills in the defaults.
    pub fn complete(args: &SizeArgs) -> Result<Sizes, Failure> {
        let heads = args.heads.unwrap_or(4);
        let sizes = Sizes {
            layers: args.layers.unwrap_or(4),
            width: args.width.unwrap_or(128),
            heads,
            kv_heads: args.kv_heads.unwrap_or(heads),
            context: args.context.unwrap_or(128),
            dropout: args.dropout.unwrap_or(0.0),
        };
        if !sizes.width.is_multiple_of(heads) {
            return Err(Failure::Mistake(format!("--heads {heads} does not divide --width {}", sizes.width)));
        }
        if !heads.is_multiple_of(sizes.kv_heads) {
            return Err(Failure::Mistake(format!("--kv-heads {} does not divide --heads {heads}", sizes.kv_heads)));
        }
        Ok(sizes)
    }

    /// The model of a name; transformers have these sizes and so many tokens.
    ///
    /// # Errors
    /// Sizes that do not go together.
    pub fn model(&self, name: ModelName, vocabulary: usize) -> Result<BuiltIn, Failure> {
        let [layers, width, heads, kv_heads, context] =
            [self.layers, self.width, self.heads, self.kv_heads, self.context]
                .map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let config = match name {
            ModelName::Lenet => return Ok(BuiltIn::LeNet),
            ModelName::Mlp => return Ok(BuiltIn::Mlp),
            ModelName::Gpt => TransformerConfig::gpt2(vocabulary, context, layers, width, heads),
            ModelName::Llama => TransformerConfig::llama(vocabulary, context, layers, width, heads),
        };
        let config = TransformerConfig { kv_heads, dropout: self.dropout, ..config };
        config.check().map_err(Failure::mistake)?;
        Ok(if name == ModelName::Gpt { BuiltIn::Gpt(config) } else { BuiltIn::Llama(config) })
    }
}

impl Language {
    /// Fills in the defaults.
    pub fn complete(args: &LanguageArgs) -> Result<Language, Failure> {
        Ok(Language {
            sizes: Sizes::complete(&args.sizes)?,
            tokenizer: args.tokenizer.clone().unwrap_or_else(|| "characters".to_string()),
            validation: args.validation.unwrap_or(0.1),
        })
    }

    /// The settings as text under the names of their flags.
    pub fn recorded(&self) -> [(&'static str, Option<String>); 8] {
        let Sizes { layers, width, heads, kv_heads, context, dropout } = self.sizes;
        [
            ("layers", Some(layers.to_string())),
            ("width", Some(width.to_string())),
            ("heads", Some(heads.to_string())),
            ("kv-heads", Some(kv_heads.to_string())),
            ("context", Some(context.to_string())),
            ("dropout", Some(dropout.to_string())),
            ("tokenizer", Some(self.tokenizer.clone())),
            ("validation", Some(self.validation.to_string())),
        ]
    }

    /// What makes the tokens.
    ///
    /// # Errors
    /// A word that is neither a kind nor a file.
    pub fn tokenizer(&self) -> Result<TokenizerChoice, Failure> {
        self.tokenizer.parse().map_err(|e| Failure::Mistake(format!("--tokenizer: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_do_not_go_together_are_named_by_their_flags() {
        let said = |args: SizeArgs| match Sizes::complete(&args) {
            Err(Failure::Mistake(text)) => text,
            _ => panic!("{args:?} was accepted"),
        };
        let args = SizeArgs { heads: Some(3), ..SizeArgs::default() };
        assert_eq!(said(args), "--heads 3 does not divide --width 128");
        let args = SizeArgs { kv_heads: Some(3), ..SizeArgs::default() };
        assert_eq!(said(args), "--kv-heads 3 does not divide --heads 4");
    }

    #[test]
    fn a_model_has_the_sizes_of_the_flags() {
        let args = SizeArgs { layers: Some(2), kv_heads: Some(2), dropout: Some(0.1), ..SizeArgs::default() };
        let sizes = Sizes::complete(&args).unwrap();
        let Ok(BuiltIn::Llama(config)) = sizes.model(ModelName::Llama, 99) else { panic!("no llama") };
        assert_eq!((config.vocabulary, config.layers, config.kv_heads, config.head_size), (99, 2, 2, 32));
        assert_eq!(config.dropout, 0.1);
        let Ok(BuiltIn::LeNet) = sizes.model(ModelName::Lenet, 0) else { panic!("no lenet") };
    }
}
