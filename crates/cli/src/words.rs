//! Words for people.

/// `1 thread`, `2 threads`
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
