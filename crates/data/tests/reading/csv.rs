//! CSV tables, whole and damaged.

use crate::common::{gzip, write};
use meshwork_data::{ArrayDataset, Column, CsvImages, CsvOptions, Dataset, LabelColumn, Result, read_csv};
use tempfile::TempDir;

fn load_bytes(bytes: &[u8], options: &CsvOptions) -> Result<ArrayDataset> {
    let folder = TempDir::new().unwrap();
    read_csv(&write(&folder, "table.csv", bytes), options)
}

fn load(text: &str) -> Result<ArrayDataset> {
    load_bytes(text.as_bytes(), &CsvOptions::default())
}

fn labelled(label: LabelColumn) -> CsvOptions {
    CsvOptions { label, ..CsvOptions::default() }
}

#[track_caller]
fn assert_message(result: Result<ArrayDataset>, expected: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn the_last_column_is_the_label() {
    let text = "1,2.5,0\n-3e1, 4 ,2\n\n5,6,1.0\n";
    let packed = load_bytes(&gzip(text.as_bytes()), &CsvOptions::default());
    for data in [load(text).unwrap(), packed.unwrap()] {
        assert_eq!((data.len(), data.num_classes()), (3, Some(3)));
        assert_eq!(data.fields()[0].shape, [2]);
        let features = vec![1.0_f32, 2.5, -30.0, 4.0, 5.0, 6.0];
        assert_eq!(data.column("features"), Some(&features.into()));
        assert_eq!(data.column("label"), Some(&vec![0_i64, 2, 1].into()));
    }
}

#[test]
fn another_column_is_the_label() {
    let text = "class,a,b\r\n1,2,3\r\n0,4,5\r\n";
    for label in [LabelColumn::Named("class".to_owned()), LabelColumn::Index(0)] {
        let data = load_bytes(text.as_bytes(), &labelled(label)).unwrap();
        assert_eq!(data.column("features"), Some(&vec![2.0_f32, 3.0, 4.0, 5.0].into()));
        assert_eq!(data.column("label"), Some(&vec![1_i64, 0].into()));
    }
}

/// Spreadsheet programs put a byte order mark before the first name.
#[test]
fn a_byte_order_mark_is_no_part_of_a_name() {
    let label = labelled(LabelColumn::Named("class".to_owned()));
    let text = b"\xef\xbb\xbfclass,a\r\n1,2\r\n";
    for bytes in [text.to_vec(), gzip(text)] {
        let data = load_bytes(&bytes, &label).unwrap();
        assert_eq!(data.column("label"), Some(&vec![1_i64].into()));
    }
}

#[test]
fn names_of_classes_are_numbered_in_alphabetical_order() {
    let data = load("1,2,virginica\n3,4,setosa\n5,6,virginica\n").unwrap();
    assert_eq!(data.column("label"), Some(&vec![1_i64, 0, 1].into()));
    assert_eq!(data.class_names().unwrap(), ["setosa", "virginica"]);
    assert_message(load("1,a\n2,3\n"), "line 2, column 2: \"3\" is not the name of a class");
}

#[test]
fn a_header_can_be_announced() {
    let options = CsvOptions { header: Some(true), delimiter: b';', ..CsvOptions::default() };
    let data = load_bytes(b"0;1;label\n7;8;0\n", &options).unwrap();
    assert_eq!(data.column("features"), Some(&vec![7.0_f32, 8.0].into()));
}

#[test]
fn columns_can_be_images() {
    let options = CsvOptions {
        images: Some(CsvImages { size: [1, 2], white: 4.0, resize: Some([1, 4]) }),
        ..CsvOptions::default()
    };
    let data = load_bytes(b"0,4,1\n2,2,0\n", &options).unwrap();
    assert_eq!(data.fields()[0].shape, [1, 1, 4]);
    let pixels = vec![0.0, 0.25, 0.75, 1.0, 0.5, 0.5, 0.5, 0.5];
    assert_eq!(data.column("image"), Some(&Column::F32(pixels)));
    assert_message(load_bytes(b"0,4,1,1\n", &options), "has 3 columns beside the label, but images of 1×2 need 2");
}

#[test]
fn bad_cells_are_named_by_line_and_column() {
    assert_message(
        load("1,2,0\n3,x,1\n"),
        "table.csv, line 2, column 2: \"x\" is not a finite number; correct the cell",
    );
    assert_message(load("a,b,label\n1,,0\n"), "line 2, column 2 (b): \"\" is not a finite number");
    assert_message(load("1,nan,0\n"), "line 1, column 2: \"nan\" is not a finite number");
    assert_message(load("1,1e39,0\n"), "line 1, column 2: \"1e39\" is not a finite number");
    assert_message(load("1,2,0\n\n3,4,-1\n"), "line 3, column 3: \"-1\" is not a class label");
    assert_message(load("1,2,0\n3,4,1.5\n"), "\"1.5\" is not a class label (a whole number from 0)");
    assert_message(load("1,2,0\n3,4,cat\n"), "\"cat\" is not a class label");
    assert_message(load("1,2,0\n3,4,1e18\n"), "\"1e18\" is not a class label");
    assert_message(load("1,2,0\n3,4,\n"), "line 2, column 3: \"\" is not a class label");
}

#[test]
fn lines_of_different_lengths() {
    assert_message(load("1,2,0\n3,1\n"), "table.csv, line 2: 2 columns, but the first line has 3; correct the line");
}

#[test]
fn empty_tables() {
    assert_message(load(""), "table.csv is empty: it holds no rows");
    assert_message(load("\n\n"), "it holds no rows");
    assert_message(load("a,b,label\n"), "it holds no rows");
}

#[test]
fn label_columns_that_do_not_exist() {
    let named = labelled(LabelColumn::Named("target".to_owned()));
    assert_message(
        load_bytes(b"a,b,class\n1,2,0\n", &named),
        "no column is called \"target\"; the first line names a, b, class",
    );
    let headless = CsvOptions { header: Some(false), ..named };
    assert_message(load_bytes(b"1,2,0\n", &headless), "but the table has no header");
    let index = labelled(LabelColumn::Index(3));
    assert_message(load_bytes(b"1,2,0\n", &index), "there are 3 columns (0 to 2)");
    assert_message(load("1\n2\n"), "one column only");
}

#[test]
fn damaged_files() {
    let packed = gzip("1,2,0\n".repeat(5000).as_bytes());
    let cut = &packed[..packed.len() - 12];
    assert_message(load_bytes(cut, &CsvOptions::default()), "table.csv: broken gzip data after");
    assert_message(
        load_bytes(b"1,2,0\n1,\xff\xfe,0\n", &CsvOptions::default()),
        "table.csv, line 2: not UTF-8 text; save the table as",
    );
    let folder = TempDir::new().unwrap();
    let missing = read_csv(&folder.path().join("none.csv"), &CsvOptions::default());
    assert_message(missing, "cannot read");
}
