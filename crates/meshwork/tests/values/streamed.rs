//! Results that are written past the caches have the bits of those that are not.

use meshwork::prelude::*;
use meshwork::tensor::concat;

/// More than 32 MiB of f32 and no multiple of a tile.
const LEN: usize = (9 << 20) + 37;

#[test]
fn large_regions_are_their_pieces() {
    let numbers = |step: usize| (0..LEN).map(|i| (i * step % 1009) as f32 - 500.5).collect::<Vec<f32>>();
    let [a, b, c] = [7, 11, 13].map(|step| Tensor::from_slice(&numbers(step), &[LEN]));
    let region = |a: &Tensor, b: &Tensor, c: &Tensor| (a * b + c).relu() / (c * 0.5 + 0.25);
    let whole: Vec<f32> = region(&a, &b, &c).to_vec();

    let sizes = [1 << 20, 3 << 20, LEN - (4 << 20)];
    let parts = [&a, &b, &c].map(|x| x.split(&sizes, 0));
    let pieces: Vec<Tensor> = (0..sizes.len())
        .map(|i| {
            let piece = region(&parts[0][i], &parts[1][i], &parts[2][i]);
            piece.eval();
            piece
        })
        .collect();
    let pieces: Vec<f32> = concat(&pieces.iter().collect::<Vec<_>>(), 0).to_vec();
    assert!(whole.iter().zip(&pieces).all(|(x, y)| x.to_bits() == y.to_bits()));
    let first = |i: usize| ((numbers(7)[i] * numbers(11)[i] + numbers(13)[i]).max(0.0)) / (numbers(13)[i] * 0.5 + 0.25);
    assert_eq!(whole[LEN - 1].to_bits(), first(LEN - 1).to_bits());
}
