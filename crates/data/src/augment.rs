//! Random distortion of training images.

use meshwork_graph::philox::{bits, site_key};

use crate::{Dataset, Field, FieldType, Result, Sample};

/// How far images are distorted; every amount is drawn uniformly from −limit to +limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Rotation, in degrees.
    pub degrees: f64,
    /// Change of size in each direction, as a part of it.
    pub scale: f64,
    /// Slant, as the tangent of its angle.
    pub shear: f64,
    /// Shift in each direction, as a part of the image's size.
    pub shift: f64,
}

impl Default for Affine {
    /// What makes handwriting vary from hand to hand.
    fn default() -> Self {
        Self { degrees: 12.0, scale: 0.15, shear: 0.2, shift: 0.08 }
    }
}

/// A dataset whose images (the first field, `[channels, height, width]`) are turned, scaled, slanted and shifted at
/// random, anew in each epoch, with zeros beyond the edges.
///
/// The distortion of a sample depends on the seed, the epoch and the sample's index alone.
#[derive(Clone, Debug)]
pub struct Augmented<D> {
    dataset: D,
    affine: Affine,
    seed: u64,
    size: [usize; 3],
}

impl<D: Dataset> Augmented<D> {
    /// Distorts the images of `dataset`.
    ///
    /// # Panics
    /// When the first field is not f32 of three dimensions.
    #[track_caller]
    pub fn new(dataset: D, affine: Affine, seed: u64) -> Self {
        let field = &dataset.fields()[0];
        let size = match (field.dtype, field.shape[..].try_into()) {
            (FieldType::F32, Ok(size)) => size,
            _ => panic!("only f32 images [channels, height, width] can be distorted, not {field:?}"),
        };
        Self { dataset, affine, seed, size }
    }

    /// The map from pixels of the distorted image to those of the original, both counted from the centre.
    fn map(&self, epoch: u64, index: usize) -> Map {
        let key = site_key(self.seed, "data.augment", epoch);
        let draw = |number: u64, limit: f64| {
            let unit = (bits(key, index as u64 * 8 + number) >> 11) as f64 / (1u64 << 53) as f64;
            limit * (2.0 * unit - 1.0)
        };
        let Affine { degrees, scale, shear, shift } = self.affine;
        let (sin, cos) = libm::sincos(draw(0, degrees).to_radians());
        let (wide, high) = (1.0 + draw(1, scale), 1.0 + draw(2, scale));
        let slant = draw(3, shear);
        let [_, height, width] = self.size;
        Map {
            x: [cos / wide, (sin + slant * cos) / wide],
            y: [-sin / high, (cos - slant * sin) / high],
            shift: [draw(4, shift) * width as f64, draw(5, shift) * height as f64],
        }
    }
}

struct Map {
    x: [f64; 2],
    y: [f64; 2],
    shift: [f64; 2],
}

impl Map {
    fn apply(&self, original: &[f32], distorted: &mut [f32], height: usize, width: usize) {
        let (middle_x, middle_y) = ((width - 1) as f64 / 2.0, (height - 1) as f64 / 2.0);
        let pixel = |y: i64, x: i64| {
            let inside = (0..height as i64).contains(&y) && (0..width as i64).contains(&x);
            if inside { original[y as usize * width + x as usize] } else { 0.0 }
        };
        for row in 0..height {
            for column in 0..width {
                let (dx, dy) = (column as f64 - middle_x - self.shift[0], row as f64 - middle_y - self.shift[1]);
                let x = self.x[0] * dx + self.x[1] * dy + middle_x;
                let y = self.y[0] * dx + self.y[1] * dy + middle_y;
                let (left, top) = (x.floor(), y.floor());
                let (right, down) = ((x - left) as f32, (y - top) as f32);
                let (left, top) = (left as i64, top as i64);
                let upper = pixel(top, left) * (1.0 - right) + pixel(top, left + 1) * right;
                let lower = pixel(top + 1, left) * (1.0 - right) + pixel(top + 1, left + 1) * right;
                distorted[row * width + column] = upper * (1.0 - down) + lower * down;
            }
        }
    }
}

impl<D: Dataset> Dataset for Augmented<D> {
    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn fields(&self) -> &[Field] {
        self.dataset.fields()
    }

    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
        self.dataset.read(index, sample)?;
        let map = self.map(sample.epoch(), index);
        let [_, height, width] = self.size;
        let pixels = sample.f32(0);
        let original = pixels.to_vec();
        let plane = height * width;
        for (from, to) in original.chunks(plane).zip(pixels.chunks_mut(plane)) {
            map.apply(from, to, height, width);
        }
        Ok(())
    }

    fn num_classes(&self) -> Option<usize> {
        self.dataset.num_classes()
    }

    fn class_names(&self) -> Option<&[String]> {
        self.dataset.class_names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, digits, read_samples};

    fn images(dataset: &dyn Dataset, indices: &[usize], epoch: u64) -> Vec<f32> {
        match read_samples(dataset, indices, epoch).unwrap().swap_remove(0) {
            Column::F32(values) => values,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_distortion_changes_nothing() {
        let [train, _] = digits().unwrap();
        let none = Affine { degrees: 0.0, scale: 0.0, shear: 0.0, shift: 0.0 };
        let same = Augmented::new(train.clone(), none, 1);
        assert_eq!(images(&same, &[0, 5, 900], 3), images(&train, &[0, 5, 900], 3));
    }

    #[test]
    fn distortions_depend_on_seed_epoch_and_index_alone() {
        let [train, _] = digits().unwrap();
        let one = Augmented::new(train.clone(), Affine::default(), 1);
        let both = images(&one, &[4, 9], 2);
        assert_eq!(both[784..], images(&one, &[9], 2)[..]);
        assert_ne!(images(&one, &[9], 2), images(&one, &[9], 3));
        assert_ne!(images(&one, &[9], 2), images(&Augmented::new(train, Affine::default(), 2), &[9], 2));
    }

    #[test]
    fn a_shift_moves_pixels_and_fills_with_zeros() {
        let image: Vec<f32> = (0..9).map(|i| i as f32).collect();
        let map = Map { x: [1.0, 0.0], y: [0.0, 1.0], shift: [1.0, 0.0] };
        let mut moved = vec![9.0; 9];
        map.apply(&image, &mut moved, 3, 3);
        assert_eq!(moved, [0.0, 0.0, 1.0, 0.0, 3.0, 4.0, 0.0, 6.0, 7.0]);
    }
}
