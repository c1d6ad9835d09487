//! Modules of the standard library: what holds modules, and what holds none.

use super::{Module, Visitor};
use crate::tensor::{ConvOptions, ConvTransposeOptions, PerDim, PoolOptions, Reduction, Tensor};
use crate::{DType, Device};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

macro_rules! without_parameters {
    ($($ty:ty),* $(,)?) => {
        $(impl Module for $ty {
            fn visit(&self, _: &mut Visitor<'_>) {}
        })*
    };
}

without_parameters! {
    (), bool, char, str, String,
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64,
    std::time::Duration, std::path::PathBuf,
    DType, Device, PerDim, ConvOptions, ConvTransposeOptions, PoolOptions, Reduction,
}

/// A tensor that is neither a parameter nor a buffer is not part of the state.
impl Module for Tensor {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

impl<T: ?Sized> Module for PhantomData<T> {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

macro_rules! transparent {
    ($($ty:ty),*) => {
        $(impl<M: Module + ?Sized> Module for $ty {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                (**self).visit(visitor);
            }
        })*
    };
}

transparent!(&M, &mut M, Box<M>, Arc<M>, Rc<M>);

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        if let Some(module) = self {
            module.visit(visitor);
        }
    }
}

impl<M: Module> Module for [M] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (i, module) in self.iter().enumerate() {
            visitor.field(&i.to_string(), module);
        }
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

/// Modules by name, visited in the order of their names.
impl<M: Module> Module for BTreeMap<String, M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, module) in self {
            visitor.field(name, module);
        }
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt),+;)*) => {
        $(impl<$($name: Module),+> Module for ($($name,)+) {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                $(visitor.field(stringify!($index), &self.$index);)+
            }
        })*
    };
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}
