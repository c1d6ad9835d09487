//! Classified images kept as bytes, as in MNIST and Fashion-MNIST.

use std::path::PathBuf;

use crate::idx::{Idx, header_len, read_idx};
use crate::{DataError, Dataset, Field, FieldType, Result, Sample};

/// The two IDX files of one part (training or test) of a data set, plain or packed with gzip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxPaths {
    /// The images: an IDX file of bytes with three dimensions.
    pub images: PathBuf,
    /// The labels: an IDX file of bytes with one dimension.
    pub labels: PathBuf,
}

/// Grey images with one label each.
///
/// Fields: `image`, `f32` of shape `[1, height, width]`, each pixel `byte / 255` and nothing else done to it;
/// `label`, `i64`, a scalar. Memory holds the bytes; they become `f32` when a sample is read.
#[derive(Clone, Debug)]
pub struct ImageDataset {
    pixels: Vec<u8>,
    labels: Vec<u8>,
    fields: [Field; 2],
    labels_origin: String,
    num_classes: usize,
    class_names: Option<Vec<String>>,
}

impl ImageDataset {
    /// Reads images and labels from IDX files. The number of classes is one more than the greatest label;
    /// [`with_num_classes`](Self::with_num_classes) changes it.
    ///
    /// # Errors
    /// Files that cannot be read, are damaged or do not belong together; see [`DataError`].
    pub fn from_idx(paths: &IdxPaths) -> Result<Self> {
        let images: Idx<3> = read_idx(&paths.images, "images")?;
        let labels: Idx<1> = read_idx(&paths.labels, "labels")?;
        let [num_images, height, width] = images.sizes;
        if num_images != labels.sizes[0] {
            return Err(DataError::CountMismatch {
                images: images.origin,
                num_images,
                labels: labels.origin,
                num_labels: labels.sizes[0],
            });
        }
        let greatest = labels.bytes.iter().max().copied().unwrap_or(0);
        Ok(Self {
            pixels: images.bytes,
            labels: labels.bytes,
            fields: [Field::new("image", FieldType::F32, [1, height, width]), Field::new("label", FieldType::I64, [])],
            labels_origin: labels.origin,
            num_classes: usize::from(greatest) + 1,
            class_names: None,
        })
    }

    /// Says how many classes there are.
    ///
    /// # Errors
    /// [`DataError::LabelRange`] for the first label outside of `0..num_classes`.
    pub fn with_num_classes(mut self, num_classes: usize) -> Result<Self> {
        let outside = |&label: &u8| usize::from(label) >= num_classes;
        if let Some(sample) = self.labels.iter().position(outside) {
            return Err(DataError::LabelRange {
                origin: self.labels_origin,
                sample,
                offset: Some(header_len(1) + sample as u64),
                label: i64::from(self.labels[sample]),
                num_classes,
            });
        }
        self.num_classes = num_classes;
        Ok(self)
    }

    /// Says how many classes there are and what they are called.
    ///
    /// # Errors
    /// As [`with_num_classes`](Self::with_num_classes).
    pub fn with_class_names<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let mut dataset = self.with_num_classes(names.len())?;
        dataset.class_names = Some(names);
        Ok(dataset)
    }

    /// All labels, in file order.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The bytes of all images, one image after the other, each in row-major order.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}

impl Dataset for ImageDataset {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
        let Some(&label) = self.labels.get(index) else {
            return Err(DataError::OutOfRange { index, len: self.len() });
        };
        let image = sample.f32(0);
        let bytes = &self.pixels[index * image.len()..][..image.len()];
        for (pixel, &byte) in image.iter_mut().zip(bytes) {
            *pixel = f32::from(byte) / 255.0;
        }
        sample.i64(1)[0] = i64::from(label);
        Ok(())
    }

    fn num_classes(&self) -> Option<usize> {
        Some(self.num_classes)
    }

    fn class_names(&self) -> Option<&[String]> {
        self.class_names.as_deref()
    }
}
