//! The vocabulary of the tokenizer of characters.

use std::collections::BTreeSet;

/// Characters in ascending order; the number of each is its token. The end of text and the unknown character follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characters {
    characters: Vec<char>,
    /// The tokens of the ASCII characters, which most texts consist of.
    ascii: [u32; 128],
}

impl Characters {
    /// Those that occur in texts.
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut ascii = [false; 128];
        let mut others = BTreeSet::new();
        for character in texts.into_iter().flat_map(str::chars) {
            match ascii.get_mut(character as usize) {
                Some(occurs) => *occurs = true,
                None => _ = others.insert(character),
            }
        }
        let ascii = (0..128_u8).filter(|&byte| ascii[usize::from(byte)]).map(char::from);
        Self::new(ascii.chain(others).collect())
    }

    /// These, where each is greater than the one before.
    pub fn sorted(characters: impl IntoIterator<Item = char>) -> Option<Self> {
        let characters: Vec<char> = characters.into_iter().collect();
        characters.is_sorted_by(|a, b| a < b).then(|| Self::new(characters))
    }

    fn new(characters: Vec<char>) -> Self {
        let mut ascii = [characters.len() as u32 + 1; 128];
        for (token, &character) in characters.iter().enumerate() {
            if let Some(entry) = ascii.get_mut(character as usize) {
                *entry = token as u32;
            }
        }
        Self { characters, ascii }
    }

    /// The characters in the order of their tokens.
    pub fn iter(&self) -> impl Iterator<Item = char> {
        self.characters.iter().copied()
    }

    /// The token behind the last character's.
    pub fn end_of_text(&self) -> u32 {
        self.characters.len() as u32
    }

    /// The token of every character that is not in the vocabulary.
    pub fn unknown(&self) -> u32 {
        self.characters.len() as u32 + 1
    }

    /// The number of tokens: that of the characters, and two.
    pub fn vocabulary(&self) -> usize {
        self.characters.len() + 2
    }

    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len());
        tokens.extend(text.chars().map(|character| match self.ascii.get(character as usize) {
            Some(&token) => token,
            None => self.characters.binary_search(&character).map_or(self.unknown(), |token| token as u32),
        }));
        tokens
    }

    /// The character of a token; `None` for the end of text.
    pub(super) fn decode(&self, token: u32) -> Option<char> {
        if token == self.end_of_text() {
            return None;
        }
        Some(self.characters.get(token as usize).copied().unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}
