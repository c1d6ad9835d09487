//! From a file or folder of text to samples.

use std::path::Path;

use crate::common::write;
use meshwork_data::{
    Batch, Column, Dataset, FieldType, Loader, LoaderOptions, Order, Result, Text, TextSource, Tokenizer,
    TokenizerChoice, open_text, read_samples,
};
use tempfile::TempDir;

fn source(path: impl AsRef<Path>, length: usize) -> TextSource {
    TextSource { path: Some(path.as_ref().to_owned()), length, ..TextSource::default() }
}

fn message(result: Result<Text>) -> String {
    result.unwrap_err().to_string()
}

/// Tokens and labels of all samples.
fn read(data: &dyn Dataset) -> [Vec<i64>; 2] {
    let indices: Vec<usize> = (0..data.len()).collect();
    let columns = read_samples(data, &indices, 0).unwrap();
    let columns: Vec<Vec<i64>> = columns
        .into_iter()
        .map(|column| match column {
            Column::I64(values) => values,
            other => panic!("{other:?}"),
        })
        .collect();
    columns.try_into().unwrap()
}

fn bytes(text: &str) -> Vec<i64> {
    text.bytes().map(i64::from).collect()
}

#[test]
fn tokens_are_packed_and_each_label_is_the_next_token() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.txt", b"abcdef");
    write(&folder, "b.txt", b"ghij");
    let text = open_text(&TextSource { validation: 0.0, ..source(&folder, 3) }).unwrap();
    let train = &text.pair.train;
    assert_eq!((train.len(), text.num_documents, text.num_bytes, text.num_tokens), (3, 2, 10, 12));
    assert_eq!(train.num_classes(), Some(257));
    for (field, name) in train.fields().iter().zip(["tokens", "label"]) {
        assert_eq!((&*field.name, field.dtype, &*field.shape), (name, FieldType::I64, [3].as_slice()));
    }
    let all = [bytes("abcdef"), vec![256], bytes("ghij"), vec![256]].concat();
    assert_eq!(read(train), [all[..9].to_vec(), all[1..10].to_vec()]);
    assert!(text.pair.test.is_empty());
    assert_eq!(text.notes, ["2 tokens at the end of the training part fill no sequence of length 3 and are left out"]);
}

#[test]
fn the_validation_part_is_the_end_and_shares_no_token_with_the_training_part() {
    let folder = TempDir::new().unwrap();
    let all = String::from_utf8((b' '..=b'~').collect()).unwrap();
    for len in 20..95 {
        for share in [0.01, 0.1, 0.5, 0.99] {
            let path = write(&folder, "text", &all.as_bytes()[..len - 1]);
            let text = open_text(&TextSource { validation: share, ..source(path, 4) }).unwrap();
            let (train, validation) = (read(&text.pair.train), read(&text.pair.test));
            let wanted = ((share * len as f64) as usize / 4).max(1);
            assert!(text.pair.test.len() == wanted || text.pair.train.len() == 1, "{len} {share}");
            let tokens = [bytes(&all[..len - 1]), vec![256]].concat();
            let (end, start) = (train[0].len(), len - validation[0].len() - 1);
            assert!(end < start && end + 1 + 4 > start, "{len} {share}");
            assert_eq!(train, [&tokens[..end], &tokens[1..=end]]);
            assert_eq!(validation, [&tokens[start..len - 1], &tokens[start + 1..]]);
        }
    }
}

#[test]
fn text_that_is_too_short_says_how_long_it_must_be() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "text", b"1234567");
    let text = |validation, length| open_text(&TextSource { validation, ..source(&path, length) });
    assert_eq!(text(0.0, 7).unwrap().pair.train.len(), 1);
    assert_eq!(text(0.5, 3).unwrap().pair.train.len(), 1);
    let start = format!("{} is too short: it makes 8 tokens, but ", path.display());
    assert_eq!(
        message(text(0.0, 8)),
        start.clone() + "9 are needed for one sequence of length 8; take more text or shorter sequences"
    );
    assert_eq!(
        message(text(0.5, 4)),
        start
            + "10 are needed for two sequences, one of them for validation, of length 4; take more text or shorter \
                 sequences"
    );
    assert!(message(text(0.1, usize::MAX)).contains("are needed"));
}

#[test]
fn characters_are_those_of_the_text() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "text", "bäb€".as_bytes());
    let source = TextSource { tokenizer: TokenizerChoice::Characters, validation: 0.0, ..source(path, 4) };
    let text = open_text(&source).unwrap();
    assert_eq!(read(&text.pair.train), [[0, 1, 0, 2], [1, 0, 2, 3]]);
    assert_eq!((text.tokenizer.vocabulary(), text.tokenizer.end_of_text()), (5, Some(3)));
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "text", b"some text");
    assert_eq!(message(open_text(&source(&path, 0))), "sequences of length 0; use at least 1");
    for share in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(
            message(open_text(&TextSource { validation: share, ..source(&path, 2) })),
            format!("a share of {share} for validation; use at least 0 and less than 1")
        );
    }
}

#[test]
fn a_sample_that_does_not_exist_is_an_error() {
    let folder = TempDir::new().unwrap();
    let text = open_text(&TextSource { validation: 0.0, ..source(write(&folder, "text", b"12345678"), 4) }).unwrap();
    let message = read_samples(&text.pair.train, &[2], 0).unwrap_err().to_string();
    assert!(message.contains("sample 2 was asked for, but the dataset holds 2"), "{message}");
}

#[test]
fn a_tokenizer_that_is_there_keeps_its_numbers_for_another_text() {
    let folder = TempDir::new().unwrap();
    let tokenizer = TokenizerChoice::Ready(Tokenizer::characters(["abc"]));
    let path = write(&folder, "text", b"cabd");
    let text = open_text(&TextSource { tokenizer, validation: 0.0, ..source(path, 4) }).unwrap();
    assert_eq!(read(&text.pair.train), [[2, 0, 1, 4], [0, 1, 4, 3]]);
}

/// Everything that a batch says.
fn facts(batch: &Batch) -> String {
    let position = (batch.position(), batch.next_position(), batch.is_last());
    format!("{position:?} {:?} {:?} {:?}", batch.indices(), batch.i64("tokens"), batch.i64("label"))
}

#[test]
fn the_loader_gives_sequences_in_an_order_that_can_be_resumed_with_and_without_a_cache() {
    let folder = TempDir::new().unwrap();
    let words: String = (0..200).map(|i| format!("word{i} ")).collect();
    let path = write(&folder, "text", words.as_bytes());
    let open = |cache: bool| {
        let cache = cache.then(|| folder.path().join("tokens"));
        open_text(&TextSource { cache, ..source(&path, 16) }).unwrap().pair.train
    };
    let options = |num_workers| LoaderOptions {
        batch_size: 8,
        order: Order::Shuffled { seed: 3 },
        num_workers,
        ..LoaderOptions::default()
    };
    let mut whole = Loader::new(open(false), options(0)).unwrap();
    let per_epoch = whole.batches_per_epoch();
    let steps = per_epoch + per_epoch / 2;
    let (mut positions, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        positions.push(whole.position());
        expected.push(facts(&whole.next().unwrap().unwrap()));
    }
    assert!(per_epoch > 5 && expected[0] != expected[per_epoch], "a new epoch has a new order");
    for (step, position) in positions.into_iter().enumerate() {
        for (workers, cache) in [(0, true), (2, false), (3, true)] {
            let resumed = Loader::from_position(open(cache), options(workers), position).unwrap();
            let rest: Vec<String> = resumed.take(steps - step).map(|batch| facts(&batch.unwrap())).collect();
            assert_eq!(rest, expected[step..]);
        }
    }
}
