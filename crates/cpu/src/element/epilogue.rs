//! Regions of single elements that run on rectangles of a product as they are finished.

use super::native::Rows;
use super::operands::{Goes, Lies, Written};
use super::place::{Placement, Region, placement};
use super::tile::{fill, slice};
use super::{Place, Step};
use crate::operand::Shared;
use crate::walk::Walk;
use crate::{Level, Operand, Output, narrow};
use half::{bf16, f16};
use meshwork_graph::ops::{Code, Fused};
use meshwork_graph::{DType, Layout};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// A part of a product's result that is finished, all products of a batch below each other.
#[derive(Clone, Debug)]
pub struct Rectangle {
    /// The first row and column.
    pub start: [usize; 2],
    /// Rows and columns.
    pub sizes: [usize; 2],
    /// The first element; those of a row lie side by side.
    pub first: *mut u8,
    /// Elements from row to row.
    pub step: usize,
}

/// Columns of a rectangle, at most.
const MOST: usize = 64;

/// An element for every column of a rectangle.
#[derive(Clone)]
#[repr(align(64))]
struct Constant([u8; MOST * 8]);

/// How an input is read by rectangles.
#[derive(Clone, Copy)]
struct Way {
    lies: Lies,
    /// Elements from row to row and from column to column.
    steps: [isize; 2],
}

impl Way {
    /// How a layout is read whose rows have so many elements, if machine code can step through it.
    fn new(layout: &Layout, columns: usize) -> Option<Way> {
        let walk = Walk::new(layout);
        let row = match walk.sizes.len() {
            1 => walk.strides[0] * columns as isize,
            2 => walk.strides[0],
            _ => return None,
        };
        let way = |lies: Lies, steps: [isize; 2]| Some(Way { lies, steps });
        match walk.inner() {
            _ if walk.is_constant() => way(Lies::Constant, [0, 0]),
            _ if walk.is_dense() => way(Lies::Dense, [row, 1]),
            (inner, 1) if inner == columns => way(Lies::Dense, [row, 1]),
            (inner, 0) if inner == columns => way(Lies::One, [row, 0]),
            _ => None,
        }
    }
}

/// A region whose input number `at` is a product with so many columns.
#[derive(Clone, Copy)]
pub struct Follows<'a> {
    /// The region.
    pub op: &'a Fused,
    /// Which input.
    pub at: usize,
    /// How many columns.
    pub columns: usize,
}

/// The placement of a region, if all of it is one run of machine code.
fn placed(follows: Follows, layouts: &[&Layout], level: Level) -> Option<(Arc<Placement>, SmallVec<[Way; 8]>)> {
    let Follows { op, at, columns } = follows;
    let product = Way { lies: Lies::Dense, steps: [columns as isize, 1] };
    let way = |(i, layout): (usize, &&Layout)| if i == at { Some(product) } else { Way::new(layout, columns) };
    let ways: SmallVec<[Way; 8]> = layouts.iter().enumerate().map(way).collect::<Option<_>>()?;
    let lies: SmallVec<[Lies; 8]> = ways.iter().map(|way| way.lies).collect();
    // Elements are read and written by the one run, so that results may lie where inputs do.
    let written = Written { goes: Goes::Cached, over: smallvec![] };
    let written: SmallVec<[Written; 4]> = smallvec![written; op.outputs.len()];
    let placement = placement(Region { op, lies: &lies, written: &written, level });
    let is_one_run = matches!(placement.steps[..], [Step::Run { .. }]) && !placement.stored.contains(&true);
    (is_one_run && placement.wide.is_none()).then_some((placement, ways))
}

/// Where an operand of the machine code lies.
enum From {
    Product {
        size: usize,
    },
    Memory {
        first: Shared<u8>,
        steps: [isize; 2],
    },
    /// The same for all elements.
    Constant(Shared<u8>),
}

/// A region that is the epilogue of a product.
pub struct Tail {
    placement: Arc<Placement>,
    native: usize,
    operands: SmallVec<[From; 8]>,
    /// What constants point to.
    _constants: Vec<Constant>,
}

impl Tail {
    /// Whether a region with inputs of these layouts can be one.
    pub fn fits(follows: Follows, layouts: &[&Layout], level: Level) -> bool {
        placed(follows, layouts, level).is_some()
    }

    /// The epilogue, where it can be one; the operands are those of the region, the product among them, wherever it lies. An
    /// output may lie where a dense input does whose elements have its size.
    pub fn new(follows: Follows, inputs: &[Operand], outputs: &[Output], level: Level) -> Option<Self> {
        let Follows { op, at, columns } = follows;
        let layouts: SmallVec<[&Layout; 8]> = inputs.iter().map(|x| x.layout).collect();
        let (placement, ways) = placed(follows, &layouts, level)?;
        let [Step::Run { native, operands, .. }] = &placement.steps[..] else { unreachable!("one run") };
        // The first slots are those of constants.
        let mut constants: Vec<Constant> = vec![Constant([0; MOST * 8]); placement.fixed.len()];
        for &register in &placement.fixed {
            let Place::Slot(slot) = placement.places[usize::from(register)] else { unreachable!("fixed is in slots") };
            let to = constants[slot].0.as_mut_ptr();
            match inputs.get(usize::from(register)) {
                // SAFETY: the operand has its one element, and there is room for as many of any dtype.
                Some(operand) => unsafe { spread(operand, to) },
                None => {
                    let instr = &op.code[usize::from(register) - inputs.len()];
                    let Code::Const(value) = instr.op else { unreachable!("only constants are fixed") };
                    // SAFETY: as above.
                    unsafe { fill(value, instr.dtype, to, MOST) };
                }
            }
        }
        let bytes = |steps: [isize; 2], dtype: DType| steps.map(|step| step * dtype.size() as isize);
        let mut operand = |place: &Place| match *place {
            Place::Input(i) if i == at => From::Product { size: inputs[i].dtype.size() },
            Place::Input(i) => {
                let offset = inputs[i].layout.offset * inputs[i].dtype.size();
                let first = Shared(inputs[i].bytes().cast_mut().wrapping_add(offset));
                From::Memory { first, steps: bytes(ways[i].steps, inputs[i].dtype) }
            }
            Place::Output(k) => {
                let steps = bytes([columns as isize, 1], outputs[k].dtype);
                From::Memory { first: Shared(outputs[k].bytes()), steps }
            }
            Place::Slot(slot) => From::Constant(Shared(constants[slot].0.as_mut_ptr())),
            Place::Repeated { .. } | Place::Kept { .. } | Place::Turned(_) | Place::Combined(_) => {
                unreachable!("no row is kept or combined, and no operand turned or repeated")
            }
        };
        let (native, operands) = (*native, operands.iter().map(&mut operand).collect());
        Some(Tail { placement, native, operands, _constants: constants })
    }

    /// Computes the results of a rectangle.
    ///
    /// # Safety
    /// The rectangle must be readable and inside of the product, whose elements are of the operand's dtype; the operands and
    /// outputs must be there, the rectangle's elements of the outputs used by nobody else, and the processor able to run the
    /// level.
    pub unsafe fn run(&self, part: &Rectangle) {
        let ([row, column], [rows, columns]) = (part.start.map(|i| i as isize), part.sizes);
        assert!(columns <= MOST, "a rectangle of {columns} columns");
        let mut addresses: SmallVec<[*mut u8; 8]> = SmallVec::new();
        let mut steps: SmallVec<[isize; 8]> = SmallVec::new();
        for operand in &self.operands {
            let (address, step) = match *operand {
                From::Product { size } => (part.first, (part.step * size) as isize),
                From::Memory { first, steps: [down, across] } => {
                    (first.pointer().wrapping_offset(row * down + column * across), down)
                }
                From::Constant(slot) => (slot.pointer(), 0),
            };
            addresses.push(address);
            steps.push(step);
        }
        // SAFETY: the caller's promise; the placement says how operands are read.
        unsafe { self.placement.natives[self.native].run(&addresses, Rows { count: rows, steps: &steps }, columns) };
    }
}

/// Fills a slot with the one element of an operand, as it is held in slots.
///
/// # Safety
/// The operand must have the element, and the slot room for a tile.
unsafe fn spread(operand: &Operand, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match operand.dtype {
            DType::F32 => slice(to, MOST).fill(*operand.first::<f32>()),
            DType::F16 => slice(to, MOST).fill(narrow::f16_to_f32(*operand.first::<f16>())),
            DType::BF16 => slice(to, MOST).fill(narrow::bf16_to_f32(*operand.first::<bf16>())),
            DType::Bool => slice(to, MOST).fill(*operand.first::<bool>()),
            DType::F64 | DType::I64 | DType::I32 | DType::U8 => unreachable!("machine code has no {}", operand.dtype),
        }
    }
}
