//! The built-in data set: 1797 hand-written digits.

use std::sync::Arc;

use crate::gz::Input;
use crate::subset::hold_back_last_fifth;
use crate::{ArrayDataset, CsvImages, CsvOptions, DataError, Result, Subset};

static TABLE: &[u8] = include_bytes!("../assets/digits.csv.gz");
const ORIGIN: &str = "the built-in digits";

/// The digits of scikit-learn (UCI, *Optical Recognition of Handwritten Digits*): training and test part.
///
/// Fields: `image`, `f32` of shape `[1, 28, 28]`, the table's 8×8 pixels of 0 to 16 divided by 16 and scaled
/// by [`resize_bilinear`](crate::resize_bilinear); `label`, `i64` from 0 to 9. The last fifth in file order is
/// the test part.
///
/// # Errors
/// None in practice: the table is part of the program.
pub fn digits() -> Result<[Subset<Arc<ArrayDataset>>; 2]> {
    let input = Input::new(ORIGIN, TABLE).map_err(|source| DataError::Read { origin: ORIGIN.to_owned(), source })?;
    let options = CsvOptions {
        images: Some(CsvImages { size: [8, 8], white: 16.0, resize: Some([28, 28]) }),
        ..CsvOptions::default()
    };
    let table = crate::csv::parse(input, &options)?;
    hold_back_last_fifth(table.with_class_names(('0'..='9').map(String::from))?, ORIGIN)
}
