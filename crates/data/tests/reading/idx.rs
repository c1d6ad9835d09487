//! IDX files, whole and damaged.

use std::path::Path;

use crate::common::{gzip, idx, write};
use meshwork_data::{Column, DataError, Dataset, IdxPaths, ImageDataset, Result, read_samples};
use tempfile::TempDir;

/// Two images of 2×3 pixels.
fn images() -> Vec<u8> {
    idx(&[2, 2, 3], &[0, 1, 2, 127, 128, 255, 9, 8, 7, 6, 5, 4])
}

fn labels() -> Vec<u8> {
    idx(&[2], &[3, 0])
}

fn load(images: &[u8], labels: &[u8]) -> Result<ImageDataset> {
    let folder = TempDir::new().unwrap();
    ImageDataset::from_idx(&IdxPaths {
        images: write(&folder, "images", images),
        labels: write(&folder, "labels", labels),
    })
}

fn message(images: &[u8], labels: &[u8]) -> String {
    load(images, labels).unwrap_err().to_string()
}

/// Asserts that the message, behind the folder of the test, is `expected`.
#[track_caller]
fn assert_message(images: &[u8], labels: &[u8], expected: &str) {
    let message = message(images, labels);
    assert!(message.contains(expected), "{message}");
}

#[test]
fn plain_and_packed_files_are_told_by_their_bytes() {
    let plain = load(&images(), &labels()).unwrap();
    let packed = load(&gzip(&images()), &gzip(&labels())).unwrap();
    for data in [plain, packed] {
        assert_eq!(data.len(), 2);
        assert_eq!(data.num_classes(), Some(4));
        assert_eq!(data.fields()[0].shape, [1, 2, 3]);
        let columns = read_samples(&data, &[1, 0], 0).unwrap();
        let bytes = [9, 8, 7, 6, 5, 4, 0, 1, 2, 127, 128, 255];
        let pixels = bytes.map(|byte: u8| f32::from(byte) / 255.0).to_vec();
        assert_eq!(columns, [Column::F32(pixels), Column::I64(vec![0, 3])]);
    }
}

#[test]
fn several_gzip_members_are_one_file() {
    let whole = images();
    let (head, tail) = whole.split_at(19);
    let packed = [gzip(head), gzip(tail)].concat();
    assert_eq!(load(&packed, &labels()).unwrap().len(), 2);
}

#[test]
fn cut_off_files() {
    let whole = images();
    for len in 0..whole.len() {
        let error = load(&whole[..len], &labels()).unwrap_err();
        match error {
            DataError::Empty { what: "images", .. } => assert_eq!(len, 0),
            DataError::IdxTruncated { expected, found, .. } => {
                assert_eq!(found, len as u64);
                assert_eq!(expected, if len < 16 { 16 } else { 28 });
            }
            other => panic!("{other}"),
        }
    }
    let cut = &whole[..20];
    let expected = "images is cut off: it ends at byte 20, but its header announces 28 bytes; get the file again";
    assert_message(cut, &labels(), expected);
    assert_message(&gzip(cut), &labels(), expected);
    assert_message(&whole, &labels()[..9], "labels is cut off: it ends at byte 9");
}

#[test]
fn empty_files() {
    assert_message(&[], &labels(), "images is empty: it holds no images");
    assert_message(&gzip(&[]), &labels(), "images is empty: it holds no images");
    let none = idx(&[0, 28, 28], &[]);
    assert_message(&none, &labels(), "images is empty: it holds no images");
}

#[test]
fn bytes_to_spare() {
    let long = [images(), vec![0]].concat();
    let expected = "its header announces 28 bytes, but the file goes on at byte 28";
    assert_message(&long, &labels(), expected);
    assert_message(&gzip(&long), &labels(), expected);
}

#[test]
fn wrong_magic() {
    assert_message(
        &labels(),
        &labels(),
        "images: bytes 0 to 3 are [00, 00, 08, 01], but an IDX file of images starts with \
         [00, 00, 08, 03] (its data is 1-dimensional instead of 3-dimensional; were the image and the label \
         file mixed up?)",
    );
    let page = b"<!DOCTYPE html>";
    assert_message(page, &labels(), "it is no IDX file; text may be a saved error page");
    assert_message(b"\x89PNG", &labels(), "(it is no IDX file)");
    assert_message(&gzip(&gzip(&images())), &labels(), "it is packed twice");
    let mut floats = images();
    floats[2] = 0x0d;
    assert_message(&floats, &labels(), "elements of type 0x0d are not supported");
}

#[test]
fn lying_headers_allocate_nothing() {
    let file = idx(&[4_000_000_000, 28, 28], &[7; 84]);
    let expected = "it ends at byte 100, but its header announces 3136000000016 bytes";
    assert_message(&file, &labels(), expected);
    assert_message(&gzip(&file), &labels(), expected);
    let endless = idx(&[u32::MAX; 3], &[7; 84]);
    assert_message(&endless, &labels(), "more than any file can hold");
    let flat = idx(&[2, 0, 28], &[]);
    assert_message(&flat, &labels(), "names the sizes [2, 0, 28], and a size of 0");
}

#[test]
fn broken_gzip() {
    let packed = gzip(&images());
    for len in 2..packed.len() {
        let error = load(&packed[..len], &labels()).unwrap_err();
        assert!(matches!(error, DataError::Gzip { .. }), "{len}: {error}");
    }
    let mut checksum = packed.clone();
    let at = checksum.len() - 8;
    checksum[at] ^= 1;
    assert_message(&checksum, &labels(), "images: broken gzip data after");

    let mut middle = packed.clone();
    middle[14] ^= 0xff;
    assert!(load(&middle, &labels()).is_err());
    let garbage = [packed, b"garbage".to_vec()].concat();
    assert_message(&garbage, &labels(), "broken gzip data after 28 unpacked bytes");
}

#[test]
fn counts_that_differ() {
    let error = message(&images(), &idx(&[3], &[0, 1, 2]));
    assert!(error.contains("images holds 2 images, but "), "{error}");
    assert!(error.contains("labels holds 3 labels; take both files from the same data set"));
}

#[test]
fn labels_out_of_range() {
    let data = load(&images(), &labels()).unwrap();
    let error = data.with_num_classes(3).unwrap_err().to_string();
    assert!(error.contains("labels: sample 0 (byte 8) has the label 3, outside of 0..3; correct"), "{error}");
    let data = load(&images(), &labels()).unwrap();
    let named = data.with_class_names(["a", "b", "c", "d", "e"]).unwrap();
    assert_eq!((named.num_classes(), named.class_names().unwrap().len()), (Some(5), 5));
}

#[test]
fn files_that_cannot_be_read() {
    let folder = TempDir::new().unwrap();
    let read = |path: &Path| {
        let paths = IdxPaths { images: path.to_owned(), labels: path.to_owned() };
        ImageDataset::from_idx(&paths).unwrap_err()
    };
    let missing = read(&folder.path().join("none"));
    assert!(matches!(missing, DataError::Read { .. }));
    assert!(missing.to_string().contains("check that it is a file and that you may read it"));
    assert!(matches!(read(folder.path()), DataError::Read { .. }));
}
