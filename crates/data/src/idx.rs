//! The IDX format of MNIST and its relatives.
//!
//! A file is `00 00`, the element type (`08` for bytes), the number of dimensions, one big-endian `u32` a
//! dimension, and the elements in row-major order (LeCun, Cortes, Burges: *The MNIST database*).

use std::path::Path;

use crate::gz::Input;
use crate::{DataError, Result};

const UNSIGNED_BYTES: u8 = 0x08;
const GZIP_IN_GZIP: [u8; 2] = [0x1f, 0x8b];

/// The content of an IDX file of bytes with `N` dimensions.
#[derive(Debug)]
pub(crate) struct Idx<const N: usize> {
    pub origin: String,
    pub sizes: [usize; N],
    pub bytes: Vec<u8>,
}

/// Bytes before the first element.
pub(crate) const fn header_len(num_dims: usize) -> u64 {
    4 + 4 * num_dims as u64
}

/// Reads a whole IDX file, plain or packed, and checks it: its length must be exactly what its header says.
///
/// `what` is the word for its content in errors.
pub(crate) fn read_idx<const N: usize>(path: &Path, what: &'static str) -> Result<Idx<N>> {
    parse(Input::open(path)?, what)
}

fn parse<const N: usize>(mut input: Input, what: &'static str) -> Result<Idx<N>> {
    let origin = input.origin.clone();
    let mut bytes = Vec::new();
    input.read_up_to(4, &mut bytes)?;
    if bytes.is_empty() {
        return Err(DataError::Empty { origin, what });
    }
    let wanted = [0, 0, UNSIGNED_BYTES, N as u8];
    let truncated = |expected, bytes: &[u8]| DataError::IdxTruncated {
        origin: origin.clone(),
        expected,
        found: bytes.len() as u64,
    };
    let Ok(found) = <[u8; 4]>::try_from(bytes.as_slice()) else {
        return Err(truncated(header_len(N), &bytes));
    };
    if found != wanted {
        return Err(DataError::IdxMagic { hint: hint(found, wanted), origin, what, found, wanted });
    }
    input.read_up_to(header_len(N) - 4, &mut bytes)?;
    if (bytes.len() as u64) < header_len(N) {
        return Err(truncated(header_len(N), &bytes));
    }
    let sizes = std::array::from_fn(|dim| {
        let at = 4 + 4 * dim;
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    });
    let expected = match file_len(&sizes) {
        Ok(expected) => expected,
        Err(problem) => {
            return Err(DataError::IdxSizes { origin, sizes: sizes.to_vec(), problem });
        }
    };
    if sizes[0] == 0 {
        return Err(DataError::Empty { origin, what });
    }

    // Asking for one byte more than announced finds bytes to spare, and lets gzip check its checksum.
    let announced = expected - header_len(N);
    bytes.clear();
    let result = input.read_up_to(announced.saturating_add(1), &mut bytes);
    let found = header_len(N) + bytes.len() as u64;
    result.map_err(|error| behind_header(error, found))?;
    if found < expected {
        return Err(DataError::IdxTruncated { origin, expected, found });
    }
    if found > expected {
        return Err(DataError::IdxTrailing { origin, expected });
    }
    bytes.shrink_to_fit();
    Ok(Idx { origin, sizes: sizes.map(|size| size as usize), bytes })
}

/// The length of a file with these sizes, header included.
fn file_len(sizes: &[u32]) -> Result<u64, &'static str> {
    if sizes[1..].contains(&0) {
        return Err("and a size of 0 leaves nothing to read");
    }
    sizes
        .iter()
        .try_fold(1_u64, |product, &size| product.checked_mul(u64::from(size)))
        .and_then(|elements| elements.checked_add(header_len(sizes.len())))
        .filter(|&len| isize::try_from(len).is_ok())
        .ok_or("more than any file can hold")
}

fn behind_header(error: DataError, found: u64) -> DataError {
    match error {
        DataError::Gzip { origin, source, .. } => DataError::Gzip { origin, offset: found, source },
        other => other,
    }
}

/// What a wrong start of a file most likely means.
fn hint(found: [u8; 4], wanted: [u8; 4]) -> String {
    if found[..2] == GZIP_IN_GZIP {
        "it is packed twice; unpack it once".to_owned()
    } else if found[..2] != [0, 0] {
        let text = found.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        let saved = if text { "; text may be a saved error page" } else { "" };
        format!("it is no IDX file{saved}")
    } else if found[2] != wanted[2] {
        format!("elements of type {:#04x} are not supported, only unsigned bytes", found[2])
    } else {
        format!(
            "its data is {}-dimensional instead of {}-dimensional; were the image and the label file mixed up?",
            found[3], wanted[3]
        )
    }
}
