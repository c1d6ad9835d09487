//! What the tests have in common.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use meshwork_data::{ArrayDataset, Batch, Loader, LoaderOptions};
use tempfile::TempDir;

/// `len` samples: two features that differ for every sample, and a label.
pub fn samples(len: usize) -> ArrayDataset {
    let features = (0..2 * len).map(|i| i as f32 / 7.0).collect::<Vec<_>>();
    let labels = (0..len).map(|i| (i % 3) as i64).collect::<Vec<_>>();
    ArrayDataset::new()
        .with_field("features", [2], features)
        .unwrap()
        .with_field("label", [], labels)
        .unwrap()
        .with_num_classes(3)
        .unwrap()
}

/// Everything that a batch says, bits of floats included.
pub fn facts(batch: &Batch) -> String {
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    format!(
        "{:?} {} {} {:?} {:?} {:?} {:?}",
        batch.position(),
        batch.index(),
        batch.is_last(),
        batch.next_position(),
        batch.indices(),
        bits(batch.f32("features")),
        batch.i64("label"),
    )
}

/// The facts of the next `count` batches.
pub fn take(loader: &mut Loader, count: usize) -> Vec<String> {
    let batches = loader.take(count).map(|batch| facts(&batch.unwrap()));
    batches.collect()
}

pub fn options(batch_size: usize, num_workers: usize) -> LoaderOptions {
    LoaderOptions { batch_size, num_workers, ..LoaderOptions::default() }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An IDX file of bytes.
pub fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    file.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    file.extend_from_slice(bytes);
    file
}

pub fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Four IDX files of 2×3 images: 4 training and 2 test samples.
pub fn write_idx_folder(folder: &Path, packed: bool) {
    fs::create_dir_all(folder).unwrap();
    for (part, count) in [("train", 4_u8), ("t10k", 2)] {
        let pixels: Vec<u8> = (0..count * 6).map(|i| i.wrapping_mul(41)).collect();
        let labels: Vec<u8> = (0..count).collect();
        let files = [
            ("images-idx3-ubyte", idx(&[count.into(), 2, 3], &pixels)),
            ("labels-idx1-ubyte", idx(&[count.into()], &labels)),
        ];
        for (name, bytes) in files {
            let (bytes, end) = if packed { (gzip(&bytes), ".gz") } else { (bytes, "") };
            fs::write(folder.join(format!("{part}-{name}{end}")), bytes).unwrap();
        }
    }
}
