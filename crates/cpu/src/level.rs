//! Loops over slices that are compiled for every [`Level`](crate::Level).

use meshwork_simd::multiversion;

/// A function of one element.
pub trait Map1<A, R>: Copy {
    /// The value; implementations are `#[inline(always)]`.
    fn at(self, x: A) -> R;
}

/// A function of two elements.
pub trait Map2<A, R>: Copy {
    /// The value; implementations are `#[inline(always)]`.
    fn at(self, x: A, y: A) -> R;
}

#[inline(always)]
fn map1_body<A: Copy, R: Copy, F: Map1<A, R>>(function: F, a: &[A], out: &mut [R]) {
    for (y, &x) in out.iter_mut().zip(a) {
        *y = function.at(x);
    }
}

#[inline(always)]
fn map2_body<A: Copy, R: Copy, F: Map2<A, R>>(function: F, a: &[A], b: &[A], out: &mut [R]) {
    for ((z, &x), &y) in out.iter_mut().zip(a).zip(b) {
        *z = function.at(x, y);
    }
}

/// Bits of which one of two can be chosen without a branch.
pub trait Bits: Copy {
    /// The first when the condition is 1, the second when it is 0; implementations are `#[inline(always)]`.
    fn choose(condition: u8, a: Self, b: Self) -> Self;
}

macro_rules! bits {
    ($($t:ident)*) => {
        $(
            impl Bits for $t {
                #[inline(always)]
                fn choose(condition: u8, a: $t, b: $t) -> $t {
                    b ^ ((a ^ b) & $t::from(condition).wrapping_neg())
                }
            }
        )*
    };
}

bits!(u8 u32 u64);

#[inline(always)]
fn map3_body<A: Bits>(condition: &[u8], a: &[A], b: &[A], out: &mut [A]) {
    for (((z, &c), &x), &y) in out.iter_mut().zip(condition).zip(a).zip(b) {
        *z = A::choose(c, x, y);
    }
}

#[inline(always)]
fn update_body<A: Copy, F: Map1<A, A>>(function: F, a: &mut [A]) {
    for x in a {
        *x = function.at(*x);
    }
}

multiversion! {
    /// Applies a function to every element in place.
    pub fn update<A: Copy, F: Map1<A, A>>(function: F, a: &mut [A]) = update_body;
}

multiversion! {
    /// Applies a function to every element.
    pub fn map1<A: Copy, R: Copy, F: Map1<A, R>>(function: F, a: &[A], out: &mut [R]) = map1_body;
}

multiversion! {
    /// Applies a function to every pair of elements.
    pub fn map2<A: Copy, R: Copy, F: Map2<A, R>>(function: F, a: &[A], b: &[A], out: &mut [R]) = map2_body;
}

multiversion! {
    /// Elements of `a` where the condition is 1, of `b` where it is 0.
    pub fn map3<A: Bits>(condition: &[u8], a: &[A], b: &[A], out: &mut [A]) = map3_body;
}
