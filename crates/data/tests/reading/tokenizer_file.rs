//! Tokenizers that are read from a `tokenizer.json`.

use crate::common::write;
use meshwork_data::{TextSource, Tokenizer, TokenizerChoice, open_text};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Byte-level BPE as GPT-2's, with 16 tokens, an end of text and numbers that are no token's; with settings that would cut
/// texts off and fill them up.
const BPE: &str = include_str!("tokenizers/bpe.json");

fn bpe() -> Tokenizer {
    Tokenizer::from_json(BPE, "bpe.json").unwrap()
}

fn tokenizer(json: &Value) -> Tokenizer {
    Tokenizer::from_json(&json.to_string(), "test").unwrap()
}

fn stream(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<String> {
    let mut stream = tokenizer.stream();
    let mut pieces: Vec<String> = tokens.iter().map(|&token| stream.push(token)).collect();
    pieces.push(stream.finish());
    pieces
}

/// The characters that stand for the 256 bytes in byte-level vocabularies (Radford et al., 2019).
fn byte_characters() -> Vec<char> {
    let shown = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    let mut others = 0x100..;
    let character = |byte| if shown(byte) { byte.into() } else { char::from_u32(others.next().unwrap()).unwrap() };
    (0..=255).map(character).collect()
}

/// All bytes, and a few pairs of them.
fn byte_level() -> Tokenizer {
    let mut vocab: Vec<String> = byte_characters().into_iter().map(String::from).collect();
    let merges = [["Ġ", "a"], ["e", "r"], ["ð", "Ł"], ["Ã", "¤"]];
    vocab.extend(merges.map(|pair| pair.concat()));
    let vocab: serde_json::Map<String, Value> =
        vocab.into_iter().zip(0..).map(|(t, id)| (t, Value::from(id))).collect();
    let mut json: Value = serde_json::from_str(BPE).unwrap();
    json["added_tokens"] = json!([]);
    json["model"]["vocab"] = vocab.into();
    json["model"]["merges"] = json!(merges);
    tokenizer(&json)
}

/// BPE as Llama 2's: a leading space that is taken away again, and bytes for what is not in the vocabulary.
fn byte_fallback() -> Tokenizer {
    let mut vocab = json!({ "<unk>": 0, "</s>": 1, "▁": 2, "a": 3, "b": 4, "▁a": 5, "ab": 6 });
    for byte in 0..256 {
        vocab[format!("<0x{byte:02X}>")] = json!(7 + byte);
    }
    tokenizer(&json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
            { "type": "ByteFallback" },
            { "type": "Fuse" },
            { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ]},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": [["▁", "a"], ["a", "b"]],
        },
    }))
}

/// Whole words, and none for other words.
fn words() -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": { "one": 0, "two": 1 }, "unk_token": "<unk>" },
    })
}

#[test]
fn merges_are_done_in_their_order() {
    let tokenizer = bpe();
    for (text, tokens) in [
        // All four merges of a word, one after the other.
        ("hello", vec![13]),
        // "Ġ w" and "o r"; "l" and "d" stay.
        ("hello world", vec![13, 14, 19, 3, 0]),
        // "h e" and no more: "he l" is no merge.
        ("held", vec![10, 3, 0]),
        // "l l" comes before "he ll"; the second "l l" is of another word.
        ("hell ll", vec![12, 7, 11]),
        ("lol", vec![3, 4, 3]),
        // ö is two bytes.
        ("wö", vec![6, 8, 9]),
        ("", vec![]),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), tokens, "{text}");
        assert_eq!(tokenizer.decode(&tokens), text);
    }
}

#[test]
fn the_end_of_text_and_the_size_are_those_of_the_file() {
    let tokenizer = bpe();
    assert_eq!((tokenizer.end_of_text(), tokenizer.vocabulary()), (Some(16), 20));
    assert_eq!(byte_fallback().end_of_text(), Some(1));
    assert_eq!((byte_level().end_of_text(), byte_level().vocabulary()), (None, 260));
    assert_eq!(tokenizer.to_string(), "BPE");
    assert_eq!(Tokenizer::from_json(&words().to_string(), "test").unwrap().to_string(), "word level");
    assert_eq!(format!("{tokenizer:?}"), "Tokenizer(BPE, 20 tokens)");
}

#[test]
fn special_tokens_are_read_in_text_and_leave_none() {
    let tokenizer = bpe();
    assert_eq!(tokenizer.encode("lo<|endoftext|>lo").unwrap(), [3, 4, 16, 3, 4]);
    assert_eq!(tokenizer.decode(&[3, 4, 16, 3, 4]), "lolo");
    assert_eq!(stream(&tokenizer, &[3, 16, 4]), ["l", "", "o", ""]);
}

#[test]
fn tokens_outside_of_the_vocabulary_are_shown() {
    assert_eq!(bpe().decode(&[13, 17, 14, 99]), "hello\u{FFFD} w\u{FFFD}");
}

#[test]
fn a_stream_gives_whole_characters() {
    assert_eq!(stream(&bpe(), &[13, 14, 8, 9, 0]), ["hello", " w", "", "ö", "d", ""]);
    assert_eq!(stream(&bpe(), &[13, 8]), ["hello", "", "\u{FFFD}"]);
}

#[test]
fn a_stream_keeps_the_spaces_of_words() {
    let tokenizer = byte_fallback();
    let tokens = tokenizer.encode("ab a€a ab").unwrap();
    assert_eq!(tokenizer.decode(&tokens), "ab a€a ab");
    let pieces = stream(&tokenizer, &tokens);
    assert_eq!(pieces.concat(), "ab a€a ab", "{pieces:?}");
    assert!(pieces.iter().all(|piece| !piece.contains('\u{FFFD}')), "{pieces:?}");
}

proptest! {
    #[test]
    fn any_text_comes_back(text in "(\\PC|[ aberä🥊\n])*") {
        for tokenizer in [byte_level(), byte_fallback()] {
            let tokens = tokenizer.encode(&text).unwrap();
            prop_assert!(tokens.iter().all(|&token| (token as usize) < tokenizer.vocabulary()));
            // Nothing tells a space in a text of Llama from U+2581.
            let text = if tokenizer == byte_level() { text.clone() } else { text.replace('▁', " ") };
            prop_assert_eq!(&tokenizer.decode(&tokens), &text);
            prop_assert_eq!(stream(&tokenizer, &tokens).concat(), text);
        }
    }
}

#[test]
fn a_checkpoint_gets_the_file_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tokenizer.json");
    bpe().save(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), BPE);
    let loaded = Tokenizer::load(&path).unwrap();
    assert_eq!(loaded, bpe());
    assert_eq!(loaded.fingerprint(), bpe().fingerprint());
    assert_ne!(loaded.fingerprint(), byte_level().fingerprint());
}

#[test]
fn a_file_that_holds_no_model_is_refused() {
    let message = Tokenizer::from_json(r#"{"model":{}}"#, "a.json").unwrap_err().to_string();
    assert!(message.starts_with("a.json holds no usable tokenizer: "), "{message}");
}

#[test]
fn an_added_token_keeps_its_number_or_is_refused() {
    let mut json: Value = serde_json::from_str(BPE).unwrap();
    json["added_tokens"][0]["id"] = 20.into();
    let message = Tokenizer::from_json(&json.to_string(), "a.json").unwrap_err().to_string();
    assert_eq!(
        message,
        "a.json holds no usable tokenizer: the added token \"<|endoftext|>\" has the number 20, but would get 16: added tokens \
         are counted on from the number of tokens in the model; name a tokenizer.json or a file that Meshwork saved"
    );
}

#[test]
fn text_without_tokens_names_its_document() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "words.json", words().to_string().as_bytes());
    write(&folder, "text/a", b"one two");
    write(&folder, "text/b/c", b"one three");
    let source = TextSource {
        path: Some(folder.path().join("text")),
        tokenizer: TokenizerChoice::File(path),
        cache: Some(folder.path().join("cache/tokens")),
        ..TextSource::default()
    };
    let message = open_text(&source).unwrap_err().to_string();
    assert!(message.starts_with("the tokenizer has no tokens for b/c: "), "{message}");
    assert!(message.ends_with("; use a tokenizer that covers the text"), "{message}");
    assert_eq!(folder.path().join("cache").read_dir().unwrap().count(), 0, "nothing is left of the cache");

    let message = tokenizer(&words()).encode("three and some more words").unwrap_err().to_string();
    assert!(message.contains("no tokens for the text that begins with \"three and some more \": "), "{message}");
}

#[test]
fn documents_without_an_end_of_text_are_noted() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "words.json", words().to_string().as_bytes());
    write(&folder, "text/a", b"one two");
    write(&folder, "text/b", b"one one");
    let source = TextSource {
        path: Some(folder.path().join("text")),
        tokenizer: TokenizerChoice::File(path),
        length: 1,
        ..TextSource::default()
    };
    let text = open_text(&source).unwrap();
    assert_eq!(text.num_tokens, 4);
    assert_eq!(text.notes, ["the tokenizer knows no end of text: nothing separates the documents"]);
}

#[test]
fn built_in_tokenizers_give_the_same_tokens_as_their_tokenizer_json() {
    let known = "Zwölf Boxkämpfer\n\tjagen \u{1f600} \u{2028}\r\n\"quer\" \\ <|end";
    let odd = "\u{0}\u{fffd}\u{85}";
    for (built_in, spoken) in [
        (Tokenizer::Bytes, known),
        (Tokenizer::Bytes, odd),
        (Tokenizer::characters([known]), known),
        (Tokenizer::characters([known]), "unknown: ÄXY% Box"),
        (Tokenizer::characters([known, odd]), odd),
    ] {
        let file = Tokenizer::from_json(&built_in.to_tokenizer_json(), "interchange").unwrap();
        assert_eq!(file.vocabulary(), built_in.vocabulary(), "{built_in}");
        assert_eq!(file.end_of_text(), built_in.end_of_text(), "{built_in}");
        let tokens = built_in.encode(spoken).unwrap();
        assert_eq!(file.encode(spoken).unwrap(), tokens, "{built_in}: {spoken:?}");
        assert_eq!(file.decode(&tokens), built_in.decode(&tokens), "{built_in}: {spoken:?}");
        let ended = [tokens.as_slice(), &[built_in.end_of_text().unwrap()]].concat();
        assert_eq!(file.encode(&format!("{spoken}<|endoftext|>")).unwrap(), ended);
        assert_eq!(file.to_tokenizer_json(), built_in.to_tokenizer_json());
    }
}
