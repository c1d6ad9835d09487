//! One instruction over one tile: tight loops that the compiler vectorises for every level.
//!
//! Registers of f16 and bf16 are held as f32 whose value the narrow type has; the caller rounds after an instruction
//! ([`round`]). Bool is held as bytes 0 and 1.

use crate::level::{Map1, Map2, map1, map2, map3, update};
use crate::narrow::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32, round_to_odd};
use crate::{Level, math};
use meshwork_graph::DType;
use meshwork_graph::ops::{BinaryOp, UnaryOp};

/// Where an instruction reads and writes: `count` elements at each pointer, as registers hold them.
#[derive(Clone, Copy)]
pub struct Tile {
    pub args: [*const u8; 3],
    pub out: *mut u8,
    pub count: usize,
    pub level: Level,
}

impl Tile {
    /// An argument.
    ///
    /// # Safety
    /// It must hold `count` initialised elements of `T`, which nobody writes meanwhile.
    unsafe fn arg<'a, T>(&self, i: usize) -> &'a [T] {
        // SAFETY: the caller promises it.
        unsafe { std::slice::from_raw_parts(self.args[i].cast(), self.count) }
    }

    /// The result.
    ///
    /// # Safety
    /// There must be room for `count` elements of `T`, which overlaps no argument.
    unsafe fn out<'a, T>(&self) -> &'a mut [T] {
        // SAFETY: the caller promises it.
        unsafe { std::slice::from_raw_parts_mut(self.out.cast(), self.count) }
    }
}

/// How a register of a dtype is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    F64,
    F32,
    I64,
    I32,
    Byte,
}

/// How a register of `dtype` is held.
pub fn held(dtype: DType) -> Held {
    match dtype {
        DType::F64 => Held::F64,
        DType::F32 | DType::F16 | DType::BF16 => Held::F32,
        DType::I64 => Held::I64,
        DType::I32 => Held::I32,
        DType::U8 | DType::Bool => Held::Byte,
    }
}

impl Held {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Held::F64 | Held::I64 => 8,
            Held::F32 | Held::I32 => 4,
            Held::Byte => 1,
        }
    }
}

/// `apply1!(tile, |x: f32| -> f32 { … })`: the loop over a tile, compiled for every level.
macro_rules! apply1 {
    ($tile:expr, |$x:ident: $from:ty| -> $to:ty $body:block) => {{
        #[derive(Clone, Copy)]
        struct Function;
        impl Map1<$from, $to> for Function {
            #[inline(always)]
            fn at(self, $x: $from) -> $to {
                $body
            }
        }
        let tile: &Tile = $tile;
        // SAFETY: the caller of the instruction promises what the pointers hold.
        unsafe { map1(tile.level, Function, tile.arg::<$from>(0), tile.out::<$to>()) }
    }};
}

/// The same with two arguments.
macro_rules! apply2 {
    ($tile:expr, |$x:ident, $y:ident: $from:ty| -> $to:ty $body:block) => {{
        #[derive(Clone, Copy)]
        struct Function;
        impl Map2<$from, $to> for Function {
            #[inline(always)]
            fn at(self, $x: $from, $y: $from) -> $to {
                $body
            }
        }
        let tile: &Tile = $tile;
        // SAFETY: the caller of the instruction promises what the pointers hold.
        unsafe { map2(tile.level, Function, tile.arg::<$from>(0), tile.arg::<$from>(1), tile.out::<$to>()) }
    }};
}

/// Unary instructions of both float types.
macro_rules! unary_float {
    ($tile:expr, $op:expr, $t:ident, $math:ident, $sin:ident, $cos:ident) => {
        match $op {
            UnaryOp::Neg => apply1!($tile, |x: $t| -> $t { -x }),
            UnaryOp::Abs => apply1!($tile, |x: $t| -> $t { x.abs() }),
            UnaryOp::Sign => apply1!($tile, |x: $t| -> $t {
                let y = if x < 0.0 { -1.0 } else { 0.0 };
                let y = if x > 0.0 { 1.0 } else { y };
                if x.is_nan() { x } else { y }
            }),
            UnaryOp::Recip => apply1!($tile, |x: $t| -> $t { 1.0 / x }),
            UnaryOp::Exp => apply1!($tile, |x: $t| -> $t { $math::exp(x) }),
            UnaryOp::Expm1 => apply1!($tile, |x: $t| -> $t { $math::expm1(x) }),
            UnaryOp::Log => apply1!($tile, |x: $t| -> $t { $math::log(x) }),
            UnaryOp::Log1p => apply1!($tile, |x: $t| -> $t { $math::log1p(x) }),
            UnaryOp::Sqrt => apply1!($tile, |x: $t| -> $t { x.sqrt() }),
            UnaryOp::Rsqrt => apply1!($tile, |x: $t| -> $t { 1.0 / x.sqrt() }),
            UnaryOp::Sin => apply1!($tile, |x: $t| -> $t { $math::$sin(x) }),
            UnaryOp::Cos => apply1!($tile, |x: $t| -> $t { $math::$cos(x) }),
            UnaryOp::Tanh => apply1!($tile, |x: $t| -> $t { $math::tanh(x) }),
            UnaryOp::Sigmoid => apply1!($tile, |x: $t| -> $t { $math::sigmoid(x) }),
            UnaryOp::Erf => apply1!($tile, |x: $t| -> $t { $math::erf(x) }),
            UnaryOp::Floor => apply1!($tile, |x: $t| -> $t { x.floor() }),
            UnaryOp::Ceil => apply1!($tile, |x: $t| -> $t { x.ceil() }),
            UnaryOp::Round => apply1!($tile, |x: $t| -> $t { x.round_ties_even() }),
            UnaryOp::Relu => apply1!($tile, |x: $t| -> $t { if x <= 0.0 { 0.0 } else { x } }),
            UnaryOp::Not => unreachable!("not of a float"),
        }
    };
}

macro_rules! unary_int {
    ($tile:expr, $op:expr, $t:ident, |$x:ident| $abs:expr, $sign:expr) => {
        match $op {
            UnaryOp::Neg => apply1!($tile, |x: $t| -> $t { x.wrapping_neg() }),
            UnaryOp::Abs => apply1!($tile, |$x: $t| -> $t { $abs }),
            UnaryOp::Sign => apply1!($tile, |$x: $t| -> $t { $sign }),
            UnaryOp::Relu => apply1!($tile, |x: $t| -> $t { x.max(0) }),
            UnaryOp::Not => apply1!($tile, |x: $t| -> $t { x ^ 1 }),
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => apply1!($tile, |x: $t| -> $t { x }),
            op => unreachable!("{op:?} of integers"),
        }
    };
}

mod f64_math {
    //! f64 functions under the names of [`crate::math`].
    pub use libm::{cos, erf, exp, expm1, log, log1p, sin, tanh};

    pub fn sigmoid(x: f64) -> f64 {
        let e = exp(-x.abs());
        if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
    }
}

/// A unary instruction on registers held as `held`.
///
/// # Safety
/// The pointers of the tile must fit [`Tile::arg`] and [`Tile::out`].
pub unsafe fn unary(op: UnaryOp, held: Held, tile: &Tile) {
    match held {
        Held::F64 => unary_float!(tile, op, f64, f64_math, sin, cos),
        Held::F32 => {
            unary_float!(tile, op, f32, math, sin_near, cos_near);
            match op {
                // SAFETY: the caller's promise.
                UnaryOp::Sin => unsafe { repair_far(math::sin, tile) },
                // SAFETY: the caller's promise.
                UnaryOp::Cos => unsafe { repair_far(math::cos, tile) },
                _ => {}
            }
        }
        Held::I64 => unary_int!(tile, op, i64, |x| x.wrapping_abs(), i64::from(x > 0) - i64::from(x < 0)),
        Held::I32 => unary_int!(tile, op, i32, |x| x.wrapping_abs(), i32::from(x > 0) - i32::from(x < 0)),
        Held::Byte => unary_int!(tile, op, u8, |x| x, x.min(1)),
    }
}

/// Sines and cosines of large arguments, one by one.
unsafe fn repair_far(function: fn(f32) -> f32, tile: &Tile) {
    // SAFETY: the caller's promise.
    let (args, out) = unsafe { (tile.arg::<f32>(0), tile.out::<f32>()) };
    for (&x, y) in args.iter().zip(out) {
        if math::is_far(x) {
            *y = function(x);
        }
    }
}

macro_rules! extremum_float {
    ($name:ident, $t:ident) => {
        /// The larger (`LARGEST`) or smaller of two floats: NaN when either is NaN, and +0 is larger than −0, so that
        /// the order of operands never matters.
        #[inline(always)]
        pub fn $name<const LARGEST: bool>(a: $t, b: $t) -> $t {
            let (x, y) = (a.to_bits(), b.to_bits());
            let equal = if LARGEST { x & y } else { x | y };
            let first = if LARGEST { a > b } else { a < b };
            let m = if first { a } else { b };
            let m = if a == b { $t::from_bits(equal) } else { m };
            if a.is_nan() || b.is_nan() { $t::NAN } else { m }
        }
    };
}

extremum_float!(extremum_f32, f32);
extremum_float!(extremum_f64, f64);

macro_rules! binary_float {
    ($tile:expr, $op:expr, $t:ident, $pow:path, $extremum:ident) => {
        match $op {
            BinaryOp::Add => apply2!($tile, |x, y: $t| -> $t { x + y }),
            BinaryOp::Sub => apply2!($tile, |x, y: $t| -> $t { x - y }),
            BinaryOp::Mul => apply2!($tile, |x, y: $t| -> $t { x * y }),
            BinaryOp::Div => apply2!($tile, |x, y: $t| -> $t { x / y }),
            BinaryOp::Pow => apply2!($tile, |x, y: $t| -> $t { $pow(x, y) }),
            BinaryOp::Max => apply2!($tile, |x, y: $t| -> $t { $extremum::<true>(x, y) }),
            BinaryOp::Min => apply2!($tile, |x, y: $t| -> $t { $extremum::<false>(x, y) }),
            op => compare!($tile, op, $t),
        }
    };
}

macro_rules! binary_int {
    ($tile:expr, $op:expr, $t:ident, $pow:path) => {
        match $op {
            BinaryOp::Add => apply2!($tile, |x, y: $t| -> $t { x.wrapping_add(y) }),
            BinaryOp::Sub => apply2!($tile, |x, y: $t| -> $t { x.wrapping_sub(y) }),
            BinaryOp::Mul => apply2!($tile, |x, y: $t| -> $t { x.wrapping_mul(y) }),
            BinaryOp::Div => apply2!($tile, |x, y: $t| -> $t { if y == 0 { 0 } else { x.wrapping_div(y) } }),
            BinaryOp::Pow => apply2!($tile, |x, y: $t| -> $t { $pow(x, y) }),
            BinaryOp::Max => apply2!($tile, |x, y: $t| -> $t { x.max(y) }),
            BinaryOp::Min => apply2!($tile, |x, y: $t| -> $t { x.min(y) }),
            op => compare!($tile, op, $t),
        }
    };
}

macro_rules! compare {
    ($tile:expr, $op:expr, $t:ident) => {
        match $op {
            BinaryOp::Eq => apply2!($tile, |x, y: $t| -> u8 { u8::from(x == y) }),
            BinaryOp::Ne => apply2!($tile, |x, y: $t| -> u8 { u8::from(x != y) }),
            BinaryOp::Lt => apply2!($tile, |x, y: $t| -> u8 { u8::from(x < y) }),
            BinaryOp::Le => apply2!($tile, |x, y: $t| -> u8 { u8::from(x <= y) }),
            BinaryOp::Gt => apply2!($tile, |x, y: $t| -> u8 { u8::from(x > y) }),
            BinaryOp::Ge => apply2!($tile, |x, y: $t| -> u8 { u8::from(x >= y) }),
            BinaryOp::And => apply2!($tile, |x, y: u8| -> u8 { x & y }),
            BinaryOp::Or => apply2!($tile, |x, y: u8| -> u8 { x | y }),
            BinaryOp::Xor => apply2!($tile, |x, y: u8| -> u8 { x ^ y }),
            op => unreachable!("{op:?} is no comparison"),
        }
    };
}

/// Repeated multiplication, which wraps; negative exponents give the truncated reciprocal, and 0 for base 0.
macro_rules! pow_signed {
    ($name:ident, $t:ident) => {
        fn $name(x: $t, y: $t) -> $t {
            match (x, y) {
                (_, 0..) => power(x, y as u64, <$t>::wrapping_mul, 1),
                (1, _) => 1,
                (-1, _) => 1 - 2 * (y & 1),
                _ => 0,
            }
        }
    };
}

pow_signed!(pow_i64, i64);
pow_signed!(pow_i32, i32);

fn pow_u8(x: u8, y: u8) -> u8 {
    power(x, y.into(), u8::wrapping_mul, 1)
}

/// By squaring, which is the same as one by one since products modulo 2ⁿ are associative.
fn power<T: Copy>(mut base: T, mut exponent: u64, multiply: impl Fn(T, T) -> T, one: T) -> T {
    let mut product = one;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product = multiply(product, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    product
}

/// A binary instruction on registers held as `held`.
///
/// # Safety
/// The pointers of the tile must fit [`Tile::arg`] and [`Tile::out`].
pub unsafe fn binary(op: BinaryOp, held: Held, tile: &Tile) {
    match held {
        Held::F64 => binary_float!(tile, op, f64, libm::pow, extremum_f64),
        Held::F32 => binary_float!(tile, op, f32, math::pow, extremum_f32),
        Held::I64 => binary_int!(tile, op, i64, pow_i64),
        Held::I32 => binary_int!(tile, op, i32, pow_i32),
        Held::Byte => binary_int!(tile, op, u8, pow_u8),
    }
}

/// `a` where the condition holds, else `b`.
///
/// # Safety
/// The pointers of the tile must fit [`Tile::arg`] and [`Tile::out`].
pub unsafe fn select(size: usize, tile: &Tile) {
    // SAFETY: the caller's promise; any bits of the element's size can be moved.
    unsafe {
        match size {
            8 => map3(tile.level, tile.arg::<u8>(0), tile.arg::<u64>(1), tile.arg(2), tile.out()),
            4 => map3(tile.level, tile.arg::<u8>(0), tile.arg::<u32>(1), tile.arg(2), tile.out()),
            _ => map3(tile.level, tile.arg::<u8>(0), tile.arg::<u8>(1), tile.arg(2), tile.out()),
        }
    }
}

/// Casts of floats to integers, truncated and saturated as by `as`, without its branches: the number is brought into
/// the range before. `i32::MAX` is no f32, so it is chosen afterwards.
macro_rules! saturate {
    ($t:ident, $to_i32:ident, $to_u8:ident) => {
        #[inline(always)]
        fn $to_i32(x: $t) -> i32 {
            let beyond = x >= 2_147_483_648.0;
            let inside = if x < -2_147_483_648.0 { -2_147_483_648.0 } else { x };
            let inside = if beyond || x.is_nan() { 0.0 } else { inside };
            // SAFETY: the number is in the range of i32.
            let y: i32 = unsafe { inside.to_int_unchecked() };
            if beyond { i32::MAX } else { y }
        }

        #[inline(always)]
        fn $to_u8(x: $t) -> u8 {
            let inside = if x > 0.0 { x } else { 0.0 };
            let inside = if inside < 255.0 { inside } else { 255.0 };
            // SAFETY: the number is from 0 to 255.
            unsafe { inside.to_int_unchecked::<i32>() as u8 }
        }
    };
}

saturate!(f32, i32_from_f32, u8_from_f32);
saturate!(f64, i32_from_f64, u8_from_f64);

macro_rules! cast_float {
    ($tile:expr, $t:ident, $to:expr, $to_i32:ident, $to_u8:ident, $half:expr) => {
        match $to {
            DType::I32 => apply1!($tile, |x: $t| -> i32 { $to_i32(x) }),
            DType::U8 => apply1!($tile, |x: $t| -> u8 { $to_u8(x) }),
            to => cast_number!($tile, $t, to, $half),
        }
    };
}

macro_rules! cast_number {
    ($tile:expr, $t:ident, $to:expr, $half:expr) => {
        match $to {
            DType::F64 => apply1!($tile, |x: $t| -> f64 { x as f64 }),
            DType::F32 => apply1!($tile, |x: $t| -> f32 { x as f32 }),
            DType::F16 | DType::BF16 => $half,
            DType::I64 => apply1!($tile, |x: $t| -> i64 { x as i64 }),
            DType::I32 => apply1!($tile, |x: $t| -> i32 { x as i32 }),
            DType::U8 => apply1!($tile, |x: $t| -> u8 { x as u8 }),
            DType::Bool => apply1!($tile, |x: $t| -> u8 { u8::from(x != 0 as $t) }),
        }
    };
}

/// To another dtype; integers wrap into narrower ones. A result of f16 or bf16 is left for [`round`], prepared so
/// that it is rounded once.
///
/// # Safety
/// The pointers of the tile must fit [`Tile::arg`] and [`Tile::out`].
pub unsafe fn cast(from: Held, to: DType, tile: &Tile) {
    match from {
        Held::F64 => {
            cast_float!(tile, f64, to, i32_from_f64, u8_from_f64, apply1!(tile, |x: f64| -> f32 { round_to_odd(x) }))
        }
        Held::F32 => cast_float!(tile, f32, to, i32_from_f32, u8_from_f32, apply1!(tile, |x: f32| -> f32 { x })),
        Held::I64 => cast_number!(tile, i64, to, apply1!(tile, |x: i64| -> f32 { round_to_odd(x as f64) })),
        Held::I32 => cast_number!(tile, i32, to, apply1!(tile, |x: i32| -> f32 { round_to_odd(x as f64) })),
        Held::Byte => cast_number!(tile, u8, to, apply1!(tile, |x: u8| -> f32 { f32::from(x) })),
    }
}

/// Reads stored elements of `dtype` into a register.
///
/// # Safety
/// The pointers of the tile must fit [`Tile::arg`] and [`Tile::out`].
pub unsafe fn widen(dtype: DType, tile: &Tile) {
    match dtype {
        DType::F16 => apply1!(tile, |x: half::f16| -> f32 { f16_to_f32(x) }),
        DType::BF16 => apply1!(tile, |x: half::bf16| -> f32 { bf16_to_f32(x) }),
        // SAFETY: the caller's promise.
        _ => unsafe { std::ptr::copy_nonoverlapping(tile.args[0], tile.out, tile.count * dtype.size()) },
    }
}

/// Stores a register as elements of `dtype`.
///
/// # Safety
/// The pointers of the tile must fit [`Tile::arg`] and [`Tile::out`].
pub unsafe fn store(dtype: DType, tile: &Tile) {
    match dtype {
        DType::F16 => apply1!(tile, |x: f32| -> half::f16 { f16_from_f32(x) }),
        DType::BF16 => apply1!(tile, |x: f32| -> half::bf16 { bf16_from_f32(x) }),
        // SAFETY: the caller's promise.
        _ => unsafe { std::ptr::copy_nonoverlapping(tile.args[0], tile.out, tile.count * dtype.size()) },
    }
}

/// Rounds the f32 register at `tile.out` in place to the values of f16 or bf16.
///
/// # Safety
/// It must hold `tile.count` elements.
pub unsafe fn round(dtype: DType, tile: &Tile) {
    #[derive(Clone, Copy)]
    struct F16;
    impl Map1<f32, f32> for F16 {
        #[inline(always)]
        fn at(self, x: f32) -> f32 {
            f16_to_f32(f16_from_f32(x))
        }
    }
    #[derive(Clone, Copy)]
    struct BF16;
    impl Map1<f32, f32> for BF16 {
        #[inline(always)]
        fn at(self, x: f32) -> f32 {
            bf16_to_f32(bf16_from_f32(x))
        }
    }
    // SAFETY: the caller's promise.
    let register = unsafe { tile.out::<f32>() };
    match dtype {
        DType::F16 => update(tile.level, F16, register),
        _ => update(tile.level, BF16, register),
    }
}
