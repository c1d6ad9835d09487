//! All tokens of a corpus, made by several threads, given in order.

use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{Corpus, Document, TextError, Tokenizer};
use crate::{DataError, Result};

/// How the work is divided, which changes nothing in the tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub threads: usize,
    /// The bytes of a piece, where a tokenizer allows cuts.
    pub piece: usize,
}

impl Work {
    pub fn on_all_cores() -> Self {
        Self { threads: thread::available_parallelism().map_or(1, usize::from), piece: 1 << 20 }
    }
}

/// A document, or a part of one between characters.
#[derive(Clone, Copy)]
struct Piece<'a> {
    document: &'a Document,
    text: &'a str,
    ends_document: bool,
}

/// Gives `take` the tokens of every document and, where the tokenizer has one, an end of text behind each. Of the text at
/// most a few pieces a thread are in memory as tokens at a time.
pub(super) fn tokenize(
    corpus: &Corpus,
    tokenizer: &Tokenizer,
    work: Work,
    mut take: impl FnMut(&[u32]) -> Result<()>,
) -> Result<()> {
    let longest = if tokenizer.can_cut() { work.piece } else { usize::MAX };
    let mut pieces = corpus.documents().iter().flat_map(|document| cut(document, longest)).peekable();
    while pieces.peek().is_some() {
        let mut bytes = 0;
        let wave: Vec<Piece<'_>> = std::iter::from_fn(|| {
            let piece = pieces.next_if(|_| bytes < 2 * work.threads * work.piece)?;
            bytes += piece.text.len();
            Some(piece)
        })
        .collect();
        for (piece, tokens) in wave.iter().zip(encode(&wave, tokenizer, work.threads)) {
            take(&tokens?)?;
            if piece.ends_document
                && let Some(end) = tokenizer.end_of_text()
            {
                take(&[end])?;
            }
        }
    }
    Ok(())
}

/// Pieces of at least one character and, where a character is not longer, of at most `longest` bytes.
fn cut(document: &Document, longest: usize) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = &*document.text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.floor_char_boundary(longest).max(first.len_utf8());
        let (text, behind) = rest.split_at(end);
        rest = behind;
        Some(Piece { document, text, ends_document: behind.is_empty() })
    })
}

/// The tokens of each piece.
fn encode(pieces: &[Piece<'_>], tokenizer: &Tokenizer, threads: usize) -> Vec<Result<Vec<u32>>> {
    let encode_one = |piece: &Piece<'_>| {
        tokenizer.encode(piece.text).map_err(|error| match error {
            DataError::Text(TextError::Encode { problem, .. }) => {
                TextError::Encode { origin: piece.document.name.clone(), problem }.into()
            }
            other => other,
        })
    };
    let mut results: Vec<Option<Result<Vec<u32>>>> = pieces.iter().map(|_| None).collect();
    let todo = Mutex::new(pieces.iter().zip(&mut results));
    let next = || todo.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some((piece, result)) = next() {
            *result = Some(encode_one(piece));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(pieces.len()) {
            // Where the system gives no more threads, those that there are do the work.
            let _ = thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    results.into_iter().map(|result| result.expect("every piece was taken by a thread")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(corpus: &Corpus, tokenizer: &Tokenizer, work: Work) -> Vec<u32> {
        let mut tokens = Vec::new();
        tokenize(corpus, tokenizer, work, |more| {
            tokens.extend_from_slice(more);
            Ok(())
        })
        .unwrap();
        tokens
    }

    #[test]
    fn neither_threads_nor_cuts_change_the_tokens() {
        let texts = ["zwölf Boxkämpfer 🥊 jagen\n", "x", "Viktor quer über den Sylter Deich 🏖️"];
        let corpus = Corpus::of("test", texts.map(|text| ("name", text))).unwrap();
        let characters = Tokenizer::characters(texts);
        for tokenizer in [Tokenizer::Bytes, characters] {
            let end = tokenizer.end_of_text().unwrap();
            let expected: Vec<u32> =
                texts.iter().flat_map(|text| [tokenizer.encode(text).unwrap(), vec![end]].concat()).collect();
            for threads in [1, 2, 5] {
                for piece in [1, 2, 3, 7, 1000] {
                    assert_eq!(all(&corpus, &tokenizer, Work { threads, piece }), expected);
                }
            }
        }
    }

    #[test]
    fn what_fails_ends_the_work() {
        let corpus = Corpus::of("test", [("name", "text")]).unwrap();
        let work = Work { threads: 2, piece: 1 };
        let result = tokenize(&corpus, &Tokenizer::Bytes, work, |_| Err(TextError::Length.into()));
        assert!(matches!(result, Err(DataError::Text(TextError::Length))));
    }
}
