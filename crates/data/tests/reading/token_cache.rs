//! Tokens that are kept in a file: used again, made anew, never believed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use crate::common::write;
use meshwork_data::{Column, Dataset, Text, TextSource, TokenizerChoice, open_text, read_samples};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_128;

const HEADER: usize = 88;

struct Case {
    folder: TempDir,
    source: TextSource,
}

impl Case {
    fn new(text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = write(&folder, "text", text.as_bytes());
        let source = TextSource { path: Some(path), length: 4, ..TextSource::default() };
        Self { folder, source }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("deep/er/tokens")
    }

    fn open(&self) -> Text {
        open_text(&TextSource { cache: Some(self.cache()), ..self.source.clone() }).unwrap()
    }

    /// The samples without a cache.
    fn expected(&self) -> Vec<Column> {
        samples(&open_text(&self.source).unwrap())
    }

    /// What is said about the cache when it is opened; the samples must be right and the cache good after that.
    fn opened_notes(&self) -> Vec<String> {
        let text = self.open();
        assert_eq!(samples(&text), self.expected());
        let start = format!("the cache of tokens {} was made anew: ", self.cache().display());
        let notes = text.notes.iter().filter_map(|note| note.strip_prefix(&start)).map(str::to_owned).collect();
        let again = self.open();
        assert_eq!(samples(&again), self.expected());
        assert!(!again.notes.iter().any(|note| note.contains("cache")), "{:?}", again.notes);
        notes
    }
}

fn samples(text: &Text) -> Vec<Column> {
    let all = |data: &dyn Dataset| read_samples(data, &(0..data.len()).collect::<Vec<_>>(), 0).unwrap();
    [all(&text.pair.train), all(&text.pair.test)].concat()
}

/// What tells whether a file is still the same one.
#[cfg(unix)]
fn identity(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().ino()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn samples_are_equal_with_and_without_a_cache() {
    let many: String = (0x2_0000..0x3_1000).filter_map(char::from_u32).collect();
    for (text, tokenizer, width) in [
        ("a text of some sentences, none of them long.", TokenizerChoice::Bytes, 2),
        ("a text of some sentences, none of them long.", TokenizerChoice::Characters, 2),
        (&many, TokenizerChoice::Characters, 4),
    ] {
        let mut case = Case::new(text);
        case.source.tokenizer = tokenizer;
        assert_eq!(case.opened_notes(), [] as [String; 0], "a first cache needs no word");
        let len = fs::metadata(case.cache()).unwrap().len() as usize;
        assert_eq!(len, HEADER + width * (text.chars().count() + 1));
        assert_eq!(files(case.cache().parent().unwrap()), [case.cache()]);
    }
}

#[cfg(unix)]
#[test]
fn a_good_cache_is_used_again() {
    let case = Case::new("a text of some sentences");
    case.open();
    let before = identity(&case.cache());
    case.open();
    assert_eq!(identity(&case.cache()), before);
}

#[test]
fn a_cache_of_something_else_is_made_anew() {
    let mut case = Case::new("a text of some sentences");
    case.open();
    write(&case.folder, "text", b"a text of some sentencez");
    assert_eq!(case.opened_notes(), ["it was of another text"]);
    case.source.tokenizer = TokenizerChoice::Characters;
    assert_eq!(case.opened_notes(), ["it was made by another tokenizer"]);

    let mut bytes = fs::read(case.cache()).unwrap();
    bytes[8] = 2;
    let hash = xxh3_128(&bytes[..HEADER - 16]);
    bytes[HEADER - 16..HEADER].copy_from_slice(&hash.to_le_bytes());
    fs::write(case.cache(), bytes).unwrap();
    assert_eq!(case.opened_notes(), ["it was of another version of Meshwork"]);

    case.source.length = 3;
    case.source.validation = 0.5;
    assert_eq!(case.opened_notes(), [] as [String; 0], "how tokens are packed does not matter");
}

#[test]
fn a_damaged_byte_is_noticed_wherever_it_is() {
    let case = Case::new("a text of some words");
    case.open();
    let good = fs::read(case.cache()).unwrap();
    for at in 8..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(case.cache(), bad).unwrap();
        assert_eq!(case.opened_notes(), ["it was damaged"], "byte {at}");
        assert_eq!(fs::read(case.cache()).unwrap(), good);
    }
}

#[test]
fn a_cache_that_was_cut_off_or_goes_on_is_noticed() {
    let case = Case::new("a text of some words");
    case.open();
    let good = fs::read(case.cache()).unwrap();
    for len in 0..good.len() {
        fs::write(case.cache(), &good[..len]).unwrap();
        let why = if len == 0 { "it was empty" } else { "it was cut off" };
        assert_eq!(case.opened_notes(), [why], "{len} bytes");
    }
    for more in 1..5 {
        fs::write(case.cache(), [&*good, &vec![0; more]].concat()).unwrap();
        assert_eq!(case.opened_notes().len(), 1, "{more} bytes more");
    }
}

#[test]
fn a_file_that_is_no_cache_is_left_alone() {
    let case = Case::new("a text of some words");
    let novel = write(&case.folder, "novel", b"my only copy");
    for path in [novel.clone(), case.folder.path().to_owned()] {
        let result = open_text(&TextSource { cache: Some(path.clone()), ..case.source.clone() });
        assert_eq!(
            result.unwrap_err().to_string(),
            format!(
                "{} is no cache of tokens and is left as it is; name another path for the cache, or remove the file",
                path.display()
            )
        );
    }
    assert_eq!(fs::read(novel).unwrap(), b"my only copy");
}

#[test]
fn a_cache_that_cannot_be_written_is_an_error() {
    let case = Case::new("a text of some words");
    let path = write(&case.folder, "file", b"").join("tokens");
    let message = open_text(&TextSource { cache: Some(path.clone()), ..case.source.clone() }).unwrap_err().to_string();
    let start = format!("cannot write the cache of tokens {}: ", path.display());
    assert!(message.starts_with(&start), "{message}");
    assert!(message.ends_with("; name another path for the cache, or go without"), "{message}");
}

#[test]
fn whoever_shares_a_cache_gets_his_own_tokens() {
    let folder = TempDir::new().unwrap();
    let cache = folder.path().join("tokens");
    thread::scope(|scope| {
        for who in 0..8 {
            let (cache, folder) = (cache.clone(), &folder);
            scope.spawn(move || {
                let text = format!("the text number {} is like the others ", who % 3).repeat(50);
                let path = write(folder, &format!("text-{who}"), text.as_bytes());
                let source = TextSource { path: Some(path), length: 7, ..TextSource::default() };
                let expected = samples(&open_text(&source).unwrap());
                let mut kept = Vec::new();
                for _ in 0..20 {
                    kept.push(open_text(&TextSource { cache: Some(cache.clone()), ..source.clone() }).unwrap());
                }
                for text in kept {
                    assert_eq!(samples(&text), expected);
                }
            });
        }
    });
    assert!(files(folder.path()).iter().all(|file| !file.to_string_lossy().ends_with(".tmp")));
}
