//! What recorded nodes compute: each distinct operation once, with a number to compare it by.

use meshwork_graph::op::OpError;
use meshwork_graph::{Op, Type};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

/// An operation and the type of its result. No number ever stands for two different things.
pub(crate) struct Kind {
    pub op: Op,
    pub ty: Type,
    /// Stands for the operation and the type.
    pub number: u64,
    /// Stands for the type alone; the number of no kind.
    pub ty_number: u64,
}

/// An operation on operands of these types.
struct Known {
    operands: SmallVec<[u64; 3]>,
    kind: Arc<Kind>,
}

/// Kinds in use, for all threads.
#[derive(Default)]
struct Numbers {
    kinds: FxHashMap<(Op, u64), Arc<Kind>>,
    types: FxHashMap<Type, u64>,
    last: u64,
}

/// Kinds remembered; when there are more, all are forgotten and get new numbers.
const MAX_KINDS: usize = 1 << 14;

static NUMBERS: Mutex<Option<Numbers>> = Mutex::new(None);

thread_local! {
    /// What this thread has recorded before, by hash: it is not inferred again.
    static KNOWN: RefCell<FxHashMap<u64, Known>> = RefCell::default();
}

impl Kind {
    /// The operation on operands of these kinds, or what is wrong with them.
    pub fn of(op: &Op, operands: &[&Kind]) -> Result<Arc<Kind>, OpError> {
        let types = || operands.iter().map(|kind| kind.ty_number);
        let mut hasher = FxHasher::default();
        op.hash(&mut hasher);
        types().for_each(|number| hasher.write_u64(number));
        let hash = hasher.finish();
        let known = KNOWN.with_borrow(|known| {
            let known = known.get(&hash)?;
            let same = known.kind.op == *op && known.operands.iter().copied().eq(types());
            same.then(|| known.kind.clone())
        });
        if let Some(kind) = known {
            return Ok(kind);
        }
        let operand_types: SmallVec<[&Type; 3]> = operands.iter().map(|kind| &kind.ty).collect();
        let ty = op.operation().infer(&operand_types)?;
        let kind = Kind::numbered(op.clone(), ty);
        KNOWN.with_borrow_mut(|known| {
            if known.len() >= MAX_KINDS {
                known.clear();
            }
            known.insert(hash, Known { operands: types().collect(), kind: kind.clone() });
        });
        Ok(kind)
    }

    /// The kind of an operation whose result has this type.
    pub fn numbered(op: Op, ty: Type) -> Arc<Kind> {
        let mut guard = NUMBERS.lock().unwrap_or_else(|e| e.into_inner());
        let numbers = guard.get_or_insert_default();
        if numbers.kinds.len() >= MAX_KINDS {
            numbers.kinds.clear();
            numbers.types.clear();
        }
        let Numbers { kinds, types, last } = numbers;
        let mut next = || {
            *last += 1;
            *last
        };
        let ty_number = match types.get(&ty) {
            Some(&number) => number,
            None => *types.entry(ty.clone()).or_insert_with(&mut next),
        };
        let new = |(op, _): &(Op, u64)| Arc::new(Kind { op: op.clone(), ty, number: next(), ty_number });
        kinds.entry((op, ty_number)).or_insert_with_key(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwork_graph::DType;
    use meshwork_graph::ops::{BinaryOp, Concat, Element, Input};

    fn input(dtype: DType, shape: &[usize]) -> Arc<Kind> {
        Kind::of(&Input { ty: Type::new(dtype, shape) }.into(), &[]).expect("any type")
    }

    fn add(a: &Kind, b: &Kind) -> Result<Arc<Kind>, OpError> {
        Kind::of(&Element::Binary(BinaryOp::Add).into(), &[a, b])
    }

    #[test]
    fn equal_kinds_have_one_number_on_all_threads() {
        let x = input(DType::F32, &[2, 3]);
        let sum = add(&x, &x).expect("equal types");
        let elsewhere = || {
            let x = input(DType::F32, &[2, 3]);
            (x.number, add(&x, &x).expect("equal types").number)
        };
        let elsewhere = std::thread::scope(|s| s.spawn(elsewhere).join().expect("no panic"));
        assert_eq!((x.number, sum.number), elsewhere);
        assert_eq!(add(&sum, &x).expect("equal types").number, sum.number);
        assert_eq!(x.ty_number, sum.ty_number);
    }

    #[test]
    fn what_differs_has_different_numbers() {
        let kinds = [input(DType::F32, &[6]), input(DType::F64, &[6]), input(DType::F32, &[2, 3])];
        let sums: Vec<Arc<Kind>> = kinds.iter().map(|x| add(x, x).expect("equal types")).collect();
        let products = kinds.iter().map(|x| Kind::of(&Element::Binary(BinaryOp::Mul).into(), &[x, x]).expect("floats"));
        let all: Vec<Arc<Kind>> = kinds.iter().cloned().chain(sums).chain(products).collect();
        let types = kinds.iter().map(|kind| kind.ty_number);
        let mut numbers: Vec<u64> = all.iter().map(|kind| kind.number).chain(types).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 12);
    }

    #[test]
    fn operands_of_other_types_are_inferred_anew() {
        let (x, y) = (input(DType::F32, &[2, 3]), input(DType::F32, &[2, 5]));
        let concat = |parts: &[&Kind]| Kind::of(&Concat { dim: 1 }.into(), parts).expect("fitting parts").ty.clone();
        assert_eq!(concat(&[&x, &y]), Type::new(DType::F32, [2, 8]));
        assert_eq!(concat(&[&x, &x]), Type::new(DType::F32, [2, 6]));
        assert_eq!(concat(&[&x]), Type::new(DType::F32, [2, 3]));
        assert!(add(&x, &y).is_err() && add(&x, &y).is_err());
    }
}
