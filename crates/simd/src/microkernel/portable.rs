//! Microkernels on arrays of four numbers, for targets without the others.

use super::loops::{anchor, microkernel, table};

macro_rules! array {
    ($number:ty, $load:ident, $store:ident, $splat:ident, $add:ident, $fma:ident) => {
        #[inline(always)]
        unsafe fn $load(x: *const $number) -> [$number; 4] {
            // SAFETY: the caller promises four readable numbers; an array has the alignment of its elements.
            unsafe { *x.cast() }
        }

        #[inline(always)]
        unsafe fn $store(x: *mut $number, value: [$number; 4]) {
            // SAFETY: the caller promises room for four numbers.
            unsafe { *x.cast() = value }
        }

        #[inline(always)]
        unsafe fn $splat(x: *const $number) -> [$number; 4] {
            // SAFETY: the caller promises a readable number.
            unsafe { [*x; 4] }
        }

        #[inline(always)]
        fn $add(a: [$number; 4], b: [$number; 4]) -> [$number; 4] {
            std::array::from_fn(|i| a[i] + b[i])
        }

        #[inline(always)]
        fn $fma(a: [$number; 4], b: [$number; 4], c: [$number; 4]) -> [$number; 4] {
            std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
        }
    };
}

array!(f32, load_f32, store_f32, splat_f32, add_f32, fma_f32);
array!(f64, load_f64, store_f64, splat_f64, add_f64, fma_f64);

microkernel!(
    portable_f32: f32, [f32; 4], 4, [0.0; 4], load_f32, store_f32, splat_f32, fma_f32, add_f32, anchor, 0, 0, false
);
table!(PORTABLE_F32, f32, portable_f32, false, [1 2 3 4], [], []);

microkernel!(
    portable_f64: f64, [f64; 4], 4, [0.0; 4], load_f64, store_f64, splat_f64, fma_f64, add_f64, anchor, 0, 0, false
);
table!(PORTABLE_F64, f64, portable_f64, false, [1 2 3 4], [], []);
