//! Tokenizers of bytes and characters: round trips, streams, files.

use std::fs;

use crate::common::write;
use meshwork_data::{Result, Tokenizer, TokenizerChoice};
use proptest::prelude::*;
use tempfile::TempDir;

fn stream(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<String> {
    let mut stream = tokenizer.stream();
    let mut pieces: Vec<String> = tokens.iter().map(|&token| stream.push(token)).collect();
    pieces.push(stream.finish());
    pieces
}

fn message(result: Result<Tokenizer>) -> String {
    result.unwrap_err().to_string()
}

proptest! {
    #[test]
    fn any_text_comes_back_from_bytes(text in any::<String>()) {
        let tokens = Tokenizer::Bytes.encode(&text).unwrap();
        prop_assert_eq!(tokens.len(), text.len());
        prop_assert_eq!(&Tokenizer::Bytes.decode(&tokens), &text);
        let pieces = stream(&Tokenizer::Bytes, &tokens);
        let completed = pieces.iter().filter(|piece| piece.chars().count() == 1).count();
        prop_assert_eq!(completed, text.chars().count(), "each character comes when its last byte does");
        prop_assert_eq!(pieces.concat(), text);
    }

    #[test]
    fn any_tokens_of_bytes_decode_as_lossy_utf8(bytes in any::<Vec<u8>>()) {
        let tokens: Vec<u32> = bytes.iter().map(|&byte| byte.into()).collect();
        prop_assert_eq!(Tokenizer::Bytes.decode(&tokens), String::from_utf8_lossy(&bytes));
        prop_assert_eq!(stream(&Tokenizer::Bytes, &tokens).concat(), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_text_comes_back_from_its_characters(text in any::<String>()) {
        let tokenizer = Tokenizer::characters([&*text]);
        let tokens = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(tokens.len(), text.chars().count());
        prop_assert!(tokens.iter().all(|&token| token < tokenizer.end_of_text().unwrap()));
        prop_assert_eq!(&tokenizer.decode(&tokens), &text);
        prop_assert_eq!(stream(&tokenizer, &tokens).concat(), text);
    }

    #[test]
    fn characters_survive_json(text in any::<String>()) {
        let tokenizer = Tokenizer::characters([&*text]);
        let read = Tokenizer::from_json(&tokenizer.to_json(), "test").unwrap();
        prop_assert_eq!(read.fingerprint(), tokenizer.fingerprint());
        prop_assert_eq!(read, tokenizer);
    }
}

#[test]
fn bytes_are_their_own_tokens_and_one_more_ends_a_text() {
    let tokenizer = Tokenizer::Bytes;
    assert_eq!(tokenizer.encode("aß\n").unwrap(), [97, 0xc3, 0x9f, 10]);
    assert_eq!((tokenizer.vocabulary(), tokenizer.end_of_text()), (257, Some(256)));
    assert_eq!(tokenizer.decode(&[97, 256, 98]), "ab");
}

#[test]
fn characters_are_numbered_in_their_order_and_two_more_follow() {
    let tokenizer = Tokenizer::characters(["zebra", "ä€a"]);
    assert_eq!(tokenizer.encode("aberzä€").unwrap(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!((tokenizer.vocabulary(), tokenizer.end_of_text()), (9, Some(7)));
    assert_eq!(tokenizer.encode("ax€y😀").unwrap(), [0, 8, 6, 8, 8], "what is not in the vocabulary is one token");
    assert_eq!(tokenizer.decode(&[4, 7, 2, 8, 9]), "ze\u{FFFD}\u{FFFD}");
    let Tokenizer::Characters(characters) = &tokenizer else { panic!("{tokenizer:?}") };
    assert_eq!((characters.iter().collect::<String>(), characters.unknown()), ("aberzä€".to_owned(), 8));
}

#[test]
fn a_stream_keeps_bytes_until_they_are_a_character() {
    let euro = [0xe2, 0x82, 0xac];
    assert_eq!(stream(&Tokenizer::Bytes, &[97, euro[0], euro[1], euro[2], 98]), ["a", "", "", "€", "b", ""]);
    assert_eq!(stream(&Tokenizer::Bytes, &[euro[0], 256, euro[1]]), ["", "", "", "\u{FFFD}"]);
    assert_eq!(stream(&Tokenizer::Bytes, &[euro[0], 97]), ["", "\u{FFFD}a", ""]);
    assert_eq!(stream(&Tokenizer::Bytes, &[euro[0], 300, 97]), ["", "\u{FFFD}\u{FFFD}", "a", ""]);
}

#[test]
fn tokenizers_are_saved_and_loaded() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tokenizer");
    for (tokenizer, name) in [(Tokenizer::Bytes, "bytes"), (Tokenizer::characters(["\"\\\n\u{0}a😀"]), "characters")]
    {
        tokenizer.save(&path).unwrap();
        assert_eq!(Tokenizer::load(&path).unwrap(), tokenizer);
        assert_eq!(tokenizer.to_string(), name);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), Tokenizer::load(&path).unwrap().to_json());
    assert_eq!(Tokenizer::Bytes.to_json(), r#"{"meshwork_tokenizer":1,"kind":"bytes"}"#);
    let refused = Tokenizer::Bytes.save(folder.path().join("none/tokenizer")).unwrap_err().to_string();
    assert!(refused.starts_with("cannot save the tokenizer as ") && refused.contains("none/tokenizer: "), "{refused}");
}

#[test]
fn fingerprints_tell_tokenizers_apart() {
    let all =
        [Tokenizer::Bytes, Tokenizer::characters(["ab"]), Tokenizer::characters(["ac"]), Tokenizer::characters([])];
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate() {
            assert_eq!(a.fingerprint() == b.fingerprint(), i == j);
        }
    }
    assert_eq!(Tokenizer::characters(["ab"]).fingerprint(), Tokenizer::characters(["b", "aa"]).fingerprint());
}

#[test]
fn what_holds_no_tokenizer_is_refused() {
    let wrong = |json: &str| message(Tokenizer::from_json(json, "a.json"));
    for (json, problem) in [
        ("[1", "EOF while parsing"),
        ("{}", "the JSON has no \"model\""),
        (r#"{"meshwork_tokenizer":2,"kind":"bytes"}"#, "it is of version 2, but this build reads version 1"),
        (r#"{"meshwork_tokenizer":1,"kind":"words"}"#, "unknown variant `words`"),
        (
            r#"{"meshwork_tokenizer":1,"kind":"characters","characters":"ba"}"#,
            "its characters are not in ascending order",
        ),
        (r#"{"meshwork_tokenizer":1,"kind":"characters","characters":"aa"}"#, "not in ascending order"),
    ] {
        let message = wrong(json);
        assert!(message.starts_with("a.json holds no usable tokenizer: ") && message.contains(problem), "{message}");
        assert!(message.ends_with("; name a tokenizer.json or a file that Meshwork saved"), "{message}");
    }

    let folder = TempDir::new().unwrap();
    let path = write(&folder, "bytes", &[b'{', 0xff]);
    assert!(message(Tokenizer::load(path)).contains("holds no usable tokenizer: it is not UTF-8 text; "));
    let missing = message(Tokenizer::load(folder.path().join("none")));
    assert!(missing.starts_with("cannot read ") && missing.contains("none: "), "{missing}");
}

#[cfg(not(feature = "tokenizer-files"))]
#[test]
fn a_build_without_tokenizer_files_says_so() {
    assert_eq!(
        message(Tokenizer::from_json(r#"{"model":{}}"#, "a.json")),
        "a.json is a tokenizer.json, which this build cannot read; compile with the feature \"tokenizer-files\", or use \
         bytes or characters"
    );
}

#[test]
fn a_word_chooses_a_tokenizer() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "tokenizer.json", b"{}");
    assert_eq!("bytes".parse::<TokenizerChoice>().unwrap(), TokenizerChoice::Bytes);
    assert_eq!("characters".parse::<TokenizerChoice>().unwrap(), TokenizerChoice::Characters);
    for word in [&path, folder.path()] {
        let choice: TokenizerChoice = word.to_str().unwrap().parse().unwrap();
        assert_eq!(choice, TokenizerChoice::File(path.clone()));
    }
    assert_eq!(
        "byte".parse::<TokenizerChoice>().unwrap_err().to_string(),
        "\"byte\" is neither a known tokenizer nor an existing file; use bytes, characters, or the path of a \
         tokenizer.json"
    );
}
