//! Operations on a region of their result.

use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::*;
use meshwork_graph::region::Region;
use meshwork_graph::{DType, Op, Shape, Type};

fn region(starts: &[usize], sizes: &[usize]) -> Region {
    Region { starts: starts.iter().copied().collect(), sizes: sizes.iter().copied().collect() }
}

#[test]
fn parts_of_addressed_values_are_printed_with_where_they_begin() {
    let shape = Shape::new(&[6, 5]);
    let part = region(&[2, 0], &[4, 5]);
    let iota = Op::from(Iota::new([6, 5], 0, DType::F32));
    assert_eq!(iota.attributes(), "[dim: 0]");
    assert_eq!(iota.of_region(&shape, &part).attributes(), "[dim: 0, from [2, 0] of [6, 5]]");
    let random = Op::from(Random::new(Distribution::Uniform, [6, 5], DType::F32));
    assert_eq!(random.attributes(), "[distribution: Uniform]");
    assert_eq!(random.of_region(&shape, &part).attributes(), "[distribution: Uniform, from [2, 0] of [6, 5]]");
    assert_eq!(random.of_region(&shape, &Region::whole(&shape)), random);
}

#[test]
fn a_chosen_cut_of_the_channels_of_a_convolution_is_printed() {
    let s = Spatial::from_slice;
    let geometry = ConvGeometry { stride: s(&[1]), padding: s(&[0]), dilation: s(&[1]), groups: 1 };
    let mut forward = Op::from(Conv::new(geometry.clone()));
    let mut input = Op::from(ConvInput::new(geometry, s(&[7])));
    let said = "[geometry: ConvGeometry { stride: [1], padding: [0], dilation: [1], groups: 1 }";
    assert_eq!(forward.attributes(), format!("{said}]"));
    assert_eq!(input.attributes(), format!("{said}, size: [7]]"));
    for op in [&mut forward, &mut input] {
        *op.blocking_mut().expect("a sum") = Blocking::Every(4);
    }
    assert_eq!(forward.attributes(), format!("{said}, Every(4)]"));
    assert_eq!(input.attributes(), format!("{said}, size: [7], Every(4)]"));
}

#[test]
fn a_fused_region_and_its_parts_keep_whole_rows() {
    let instr = |op, args, of_rows| Instr { op, args, of_rows, dtype: DType::F32 };
    let code = vec![
        instr(Code::Reduce(ReduceOp::Sum, 64), [0; 3], true),
        instr(Code::Spread, [1, 0, 0], false),
        instr(Element::Binary(BinaryOp::Div).into(), [0, 2, 0], false),
    ];
    let fused = Op::from(Fused {
        space: Space::rows(2, Shape::new(&[8, 3, 5])),
        inputs: vec![Source { dtype: DType::F32, of_rows: false }],
        code,
        outputs: [3, 1].into_iter().collect(),
    });
    let whole = Shape::new(&[8, 3, 5]);
    let part = fused.of_region(&whole, &region(&[2, 1, 0], &[6, 2, 5]));
    let Op::Fused(part) = part else { panic!("another operation") };
    let ty = |shape: &[usize]| Type::new(DType::F32, shape);
    assert_eq!(part.results(&[&ty(&[6, 2, 5])]).unwrap()[..], [ty(&[6, 2, 5]), ty(&[6, 2])]);
    assert!(part.results(&[&ty(&[8, 3, 5])]).is_err());
    let rows = Op::from(Part { index: 1, ty: ty(&[8, 3]) });
    let rows = rows.of_region(&Shape::new(&[8, 3]), &region(&[2, 1], &[6, 2]));
    assert_eq!(rows.operation().infer(&[]), Ok(ty(&[6, 2])));
}
