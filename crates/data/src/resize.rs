//! Bilinear scaling of images.

/// Scales one channel of `from = [height, width]` pixels to `to = [height, width]` by bilinear interpolation.
///
/// Pixel centres lie at halves and positions outside are clamped to the edge, as in PyTorch's
/// `interpolate(mode="bilinear", align_corners=False)`. Computed in f64 and rounded once, in a fixed order: the result
/// is the same on every machine.
///
/// # Panics
/// Where `image` does not hold `height × width` pixels or a size is 0.
#[track_caller]
pub fn resize_bilinear(image: &[f32], from: [usize; 2], to: [usize; 2]) -> Vec<f32> {
    assert!(
        from.iter().chain(&to).all(|&size| size > 0),
        "an image of {from:?} cannot be scaled to {to:?}: sizes must be at least 1"
    );
    assert_eq!(image.len(), from[0] * from[1], "an image of {from:?} pixels was announced");
    let columns: Vec<Tap> = (0..to[1]).map(|x| Tap::new(x, from[1], to[1])).collect();
    let mut scaled = Vec::with_capacity(to[0] * to[1]);
    for y in 0..to[0] {
        let rows = Tap::new(y, from[0], to[0]);
        let upper = &image[rows.low * from[1]..][..from[1]];
        let lower = &image[rows.high * from[1]..][..from[1]];
        scaled.extend(columns.iter().map(|column| {
            let along = |row: &[f32]| column.mix(f64::from(row[column.low]), f64::from(row[column.high]));
            rows.mix(along(upper), along(lower)) as f32
        }));
    }
    scaled
}

/// The two source pixels that one target pixel lies between, and their weights.
struct Tap {
    low: usize,
    high: usize,
    weight_low: f64,
    weight_high: f64,
}

impl Tap {
    fn new(target: usize, from: usize, to: usize) -> Self {
        let scale = from as f64 / to as f64;
        let source = (scale * (target as f64 + 0.5) - 0.5).max(0.0);
        let low = (source as usize).min(from - 1);
        let weight_high = (source - low as f64).min(1.0);
        Self { low, high: (low + 1).min(from - 1), weight_low: 1.0 - weight_high, weight_high }
    }

    fn mix(&self, low: f64, high: f64) -> f64 {
        self.weight_low * low + self.weight_high * high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the documentation of PyTorch's `Upsample`.
    #[test]
    fn pytorch_documentation_example() {
        let scaled = resize_bilinear(&[1.0, 2.0, 3.0, 4.0], [2, 2], [4, 4]);
        #[rustfmt::skip]
        assert_eq!(scaled, [
            1.00, 1.25, 1.75, 2.00,
            1.50, 1.75, 2.25, 2.50,
            2.50, 2.75, 3.25, 3.50,
            3.00, 3.25, 3.75, 4.00,
        ]);
    }

    #[test]
    fn same_size_changes_nothing() {
        let image = [0.1, 0.7, 0.3, 0.9, 0.2, 0.5];
        assert_eq!(resize_bilinear(&image, [2, 3], [2, 3]), image);
    }

    #[test]
    fn shrinking_takes_the_pixels_around_the_centre() {
        assert_eq!(resize_bilinear(&[0.0, 1.0, 2.0, 3.0], [1, 4], [1, 2]), [0.5, 2.5]);
        assert_eq!(resize_bilinear(&[4.0], [1, 1], [2, 2]), [4.0; 4]);
    }

    #[test]
    #[should_panic(expected = "sizes must be at least 1")]
    fn no_pixels() {
        resize_bilinear(&[], [0, 1], [2, 2]);
    }
}
