//! The built-in tokenizers in the form of `tokenizer.json`, which the library `tokenizers` reads.

use serde_json::{Map, Value, json};

use super::Characters;
use super::tokenizer::BYTES_END;

/// What ends a text, as GPT-2 calls it.
const END_OF_TEXT: &str = "<|endoftext|>";

/// Byte-level BPE (Radford et al., 2019) without merges.
pub(super) fn bytes() -> Value {
    let characters = byte_characters().into_iter().map(String::from);
    let byte_level =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    let model = json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
        "vocab": vocabulary(characters.chain([END_OF_TEXT.to_owned()])), "merges": [],
    });
    described(BYTES_END, &byte_level, &byte_level, &model)
}

/// A vocabulary of words, which are single characters.
pub(super) fn characters(characters: &Characters) -> Value {
    // An unknown character is U+FFFD here, too, unless that is a known one.
    let replacement = char::REPLACEMENT_CHARACTER;
    let unknown = if characters.iter().any(|c| c == replacement) { "<unk>".to_owned() } else { replacement.into() };
    let others = [END_OF_TEXT.to_owned(), unknown.clone()];
    let vocabulary = vocabulary(characters.iter().map(String::from).chain(others));
    let split = json!({ "type": "Split", "pattern": { "Regex": r"[\s\S]" }, "behavior": "Isolated", "invert": false });
    let model = json!({ "type": "WordLevel", "vocab": vocabulary, "unk_token": unknown });
    described(characters.end_of_text(), &split, &json!({ "type": "Fuse" }), &model)
}

fn described(end_of_text: u32, pre_tokenizer: &Value, decoder: &Value, model: &Value) -> Value {
    let end_of_text = json!({
        "id": end_of_text, "content": END_OF_TEXT, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end_of_text], "normalizer": null,
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder, "model": model,
    })
}

/// Tokens, numbered from 0.
fn vocabulary(tokens: impl Iterator<Item = String>) -> Map<String, Value> {
    tokens.zip(0_u32..).map(|(token, id)| (token, id.into())).collect()
}

/// The characters that stand for the 256 bytes in byte-level vocabularies: themselves where they can be seen, the others
/// from U+0100 on.
fn byte_characters() -> Vec<char> {
    let mut others = '\u{100}'..;
    let of_byte = |byte| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae.. => char::from(byte),
        _ => others.next().expect("there are many characters"),
    };
    (0..=u8::MAX).map(of_byte).collect()
}
