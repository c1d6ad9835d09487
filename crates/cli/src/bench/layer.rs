//! What layers are called: words with `-` between them, sizes with `x`, options of a letter and a number.

use crate::failure::Failure;
use std::fmt::Formatter;

/// What was given, or what the names say that are measured where nothing is.
pub fn or_all<T: Clone>(given: &[T], names: &[&str], parse: fn(&str) -> Result<T, String>) -> Result<Vec<T>, Failure> {
    match given {
        [] => names.iter().map(|name| parse(name)).collect::<Result<_, _>>().map_err(Failure::mistake),
        given => Ok(given.to_vec()),
    }
}

/// Parses sizes such as `16x64x56x56`, none of them 0.
pub fn sizes(word: &str) -> Option<Vec<usize>> {
    word.split('x').map(|n| n.parse().ok().filter(|n| *n > 0)).collect()
}

/// Reads options such as `s2` into the numbers of their letters. Only a padding, `p`, may be 0.
pub fn options<'a>(words: impl Iterator<Item = &'a str>, numbers: &mut [(&str, &mut usize)]) -> Option<()> {
    for word in words {
        let (letter, number) = word.split_at_checked(1)?;
        let (_, to) = numbers.iter_mut().find(|(of, _)| *of == letter)?;
        **to = number.parse().ok().filter(|n| *n > 0 || letter == "p")?;
    }
    Some(())
}

/// Writes options as [`options`] reads them: letter, number, and the number that is not written.
pub fn write_options(f: &mut Formatter<'_>, numbers: &[(&str, usize, usize)]) -> std::fmt::Result {
    let written = numbers.iter().filter(|(_, number, default)| number != default);
    written.into_iter().try_for_each(|(letter, number, _)| write!(f, "-{letter}{number}"))
}

/// Sizes as [`sizes`] reads them.
pub fn by(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// Whether windows lie in padded inputs; `None` where a number is beyond all bounds.
pub fn fits(kernel: &[usize], size: &[usize], padding: usize, dilation: usize) -> Option<bool> {
    let mut fits = true;
    for (tap, size) in kernel.iter().zip(size) {
        let reach = (tap - 1).checked_mul(dilation)?.checked_add(1)?;
        fits &= reach <= padding.checked_mul(2)?.checked_add(*size)?;
    }
    Some(fits)
}
