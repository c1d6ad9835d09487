//! Convolution in one, two or three spatial dimensions, and its two gradients.
//!
//! The three are closed under differentiation: each one's gradients are the other two. Definitions, with
//! `p = position · stride + tap · dilation − padding` per spatial dimension and channels by groups:
//! - [`Conv`]: `y[n,o,s] = Σ_{c,tap} x[n,c,p] · w[o,c,tap]`, the cross-correlation of the field.
//! - [`ConvInput`]: `dx[n,c,p] = Σ_{tap} Σ_o dy[n,o,s] · w[o,c,tap]`.
//! - [`ConvWeight`]: `dw[o,c,tap] = Σ_{n,s} x[n,c,p] · dy[n,o,s]`.

use crate::canonical::{Blocking, Blocks};
use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::{Shape, Type};
use smallvec::SmallVec;

/// One number per spatial dimension.
pub type Spatial = SmallVec<[usize; 3]>;

/// What the three convolutions share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvGeometry {
    /// Step of the window.
    pub stride: Spatial,
    /// Zeros added on both sides.
    pub padding: Spatial,
    /// Distance between the taps of the kernel.
    pub dilation: Spatial,
    /// Channels are cut into this many groups that do not see each other.
    pub groups: usize,
}

impl ConvGeometry {
    /// Spatial sizes of the output of a forward convolution, or `None` where the kernel does not fit.
    pub fn output(&self, input: &[usize], kernel: &[usize]) -> Option<Spatial> {
        (0..self.stride.len())
            .map(|d| {
                let span = self.dilation[d] * kernel[d].checked_sub(1)? + 1;
                Some((input[d] + 2 * self.padding[d]).checked_sub(span)? / self.stride[d] + 1)
            })
            .collect()
    }

    fn check(&self, name: &str, x: &Shape, w: &Shape, y: Option<&Shape>) -> Result<Shape, OpError> {
        let spatial = self.stride.len();
        let wrong = |what: String| Err(OpError(format!("{name}: {what}")));
        if x.rank() != spatial + 2 || w.rank() != spatial + 2 {
            return wrong(format!(
                "input {x} and weight {w} need {} dims [samples, channels, {spatial} spatial]",
                spatial + 2
            ));
        }
        if self.groups == 0 || self.stride.contains(&0) || self.dilation.contains(&0) {
            return wrong("groups, stride and dilation must be at least 1".into());
        }
        if x[1] != w[1] * self.groups || !w[0].is_multiple_of(self.groups) {
            return wrong(format!(
                "input {x} has {} channels, but weight {w} with {} groups takes {} and gives {}",
                x[1],
                self.groups,
                w[1] * self.groups,
                w[0]
            ));
        }
        let Some(out) = self.output(&x[2..], &w[2..]) else {
            return wrong(format!("the kernel of weight {w} is larger than the padded input {x}"));
        };
        let mut shape = Shape::new(&[x[0], w[0]]);
        shape.0.extend(out);
        match y {
            Some(y) if *y != shape => wrong(format!("output {y} does not belong to input {x} and weight {w}")),
            _ => Ok(shape),
        }
    }

    /// Keeps the groups of a part of the channels, `part` of `whole`.
    pub(crate) fn keep_groups(&mut self, part: usize, whole: usize) {
        if self.groups > 1 {
            self.groups = self.groups * part / whole;
        }
    }

    /// The spatial dimensions along which every output position reads a run of input positions that no other one reads:
    /// pointwise convolutions, and patches.
    fn patches(&self, x: &Shape, w: &Shape, y: &Shape) -> Spatial {
        let apart = |d: usize| {
            let reach = self.dilation[d] * (w[d + 2] - 1);
            self.padding[d] == 0 && reach < self.stride[d] && x[d + 2] == y[d + 2] * self.stride[d]
        };
        (0..self.stride.len()).filter(|&d| apart(d)).map(|d| d + 2).collect()
    }
}

/// Convolution: `(x [N, C, …], w [O, C/groups, …]) -> [N, O, …]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Windows and groups.
    pub geometry: ConvGeometry,
    /// How the sum over the channels of a group is cut.
    pub blocking: Blocking,
}

impl Conv {
    /// The convolution of all channels.
    pub fn new(geometry: ConvGeometry) -> Self {
        Conv { geometry, blocking: Blocking::Features }
    }

    /// The cut of the sum: over the channels of a group, each standing for the kernel's taps.
    pub fn blocks(&self, weight: &Shape) -> Blocks {
        Blocks::contraction(self.blocking, weight[1], weight[2..].iter().product())
    }
}

/// Gradient by the input, `(dy [N, O, …], w [O, C/groups, …]) -> [N, C, …]`; also the transposed convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvInput {
    /// Of the forward convolution.
    pub geometry: ConvGeometry,
    /// Spatial sizes of the result.
    pub size: Spatial,
    /// How the sum over the output channels of a group is cut.
    pub blocking: Blocking,
}

impl ConvInput {
    /// The gradient from all output channels.
    pub fn new(geometry: ConvGeometry, size: Spatial) -> Self {
        ConvInput { geometry, size, blocking: Blocking::Features }
    }

    /// The cut of the inner sum: over the output channels of a group. The sums of the taps are then added in tap order,
    /// starting from +0.
    pub fn blocks(&self, weight: &Shape) -> Blocks {
        Blocks::contraction(self.blocking, weight[0] / self.geometry.groups, 1)
    }
}

/// Gradient by the weight, `(x [N, C, …], dy [N, O, …]) -> [O, C/groups, …]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvWeight {
    /// Of the forward convolution.
    pub geometry: ConvGeometry,
    /// Spatial sizes of the kernel.
    pub kernel: Spatial,
    /// How the sum over the samples is cut.
    pub blocking: Blocking,
}

impl ConvWeight {
    /// The gradient of a whole batch.
    pub fn new(geometry: ConvGeometry, kernel: Spatial) -> Self {
        ConvWeight { geometry, kernel, blocking: Blocking::Samples }
    }

    /// The cut of the sum for an output of this shape: over samples, each standing for the output positions.
    pub fn blocks(&self, output: &Shape) -> Blocks {
        Blocks::contraction(self.blocking, output[0], output[2..].iter().product())
    }
}

fn floats(name: &str, inputs: &[&Type]) -> Result<DType, OpError> {
    let (a, b) = (inputs[0].dtype, inputs[1].dtype);
    if a == b && a.is_float() {
        return Ok(a);
    }
    Err(OpError(format!("{name}: needs two floating-point tensors of one dtype, not {a} and {b}")))
}

fn macs(x: &Shape, w: &Shape, y: &Shape) -> u64 {
    debug_assert_eq!(x.rank(), w.rank());
    2 * (y.numel() * w[1..].iter().product::<usize>()) as u64
}

impl Operation for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let dtype = floats("conv", inputs)?;
        Ok(Type { dtype, shape: self.geometry.check("conv", &inputs[0].shape, &inputs[1].shape, None)? })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let (x, w) = (b.inputs[0], b.inputs[1]);
        let size = Spatial::from_slice(&g.ty(x).shape[2..]);
        let kernel = Spatial::from_slice(&g.ty(w).shape[2..]);
        vec![
            Some(g.add_node(ConvInput::new(self.geometry.clone(), size), &[b.grad, w])),
            Some(g.add_node(ConvWeight::new(self.geometry.clone(), kernel), &[x, b.grad])),
        ]
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        // Windows that overlap, reach over the border or leave a rest need their neighbours' positions.
        let (x, w) = (&inputs[0].shape, &inputs[1].shape);
        let samples = SplitRule::whole().factor(Kind::Mapped, &[Some(0), None], Some(0));
        let patches = self.geometry.patches(x, w, &output.shape);
        let rule = patches.into_iter().fold(samples, |rule, d| rule.factor(Kind::Mapped, &[Some(d), None], Some(d)));
        if self.geometry.groups > 1 {
            // Channels of several groups are not together, so those of a group stay whole.
            return rule.factor(Kind::Mapped, &[Some(1), Some(0)], Some(1)).counting(self.geometry.groups);
        }
        let unit = self.blocks(w).unit;
        rule.factor(Kind::Mapped, &[None, Some(0)], Some(1)).factor(Kind::Sum, &[Some(1), Some(1)], None).every(unit)
    }

    fn flops(&self, inputs: &[&Type], output: &Type) -> u64 {
        macs(&inputs[0].shape, &inputs[1].shape, &output.shape)
    }
}

impl Operation for ConvInput {
    fn name(&self) -> &'static str {
        "conv_input"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let dtype = floats("conv_input", inputs)?;
        let (y, w) = (&inputs[0].shape, &inputs[1].shape);
        if w.rank() != self.size.len() + 2 || y.rank() != w.rank() {
            return Err(OpError(format!("conv_input: gradient {y} and weight {w} differ in dims")));
        }
        let mut shape = Shape::new(&[y[0], w[1] * self.geometry.groups]);
        shape.0.extend(self.size.iter().copied());
        self.geometry.check("conv_input", &shape, w, Some(y))?;
        Ok(Type { dtype, shape })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let (dy, w) = (b.inputs[0], b.inputs[1]);
        let kernel = Spatial::from_slice(&g.ty(w).shape[2..]);
        vec![
            Some(g.add_node(Conv::new(self.geometry.clone()), &[b.grad, w])),
            Some(g.add_node(ConvWeight::new(self.geometry.clone(), kernel), &[b.grad, dy])),
        ]
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        // Windows that overlap, reach over the border or leave a rest give to their neighbours' positions.
        let (y, w) = (&inputs[0].shape, &inputs[1].shape);
        let samples = SplitRule::whole().factor(Kind::Mapped, &[Some(0), None], Some(0));
        let patches = self.geometry.patches(&output.shape, w, y);
        let rule = patches.into_iter().fold(samples, |rule, d| rule.factor(Kind::Mapped, &[Some(d), None], Some(d)));
        if self.geometry.groups > 1 {
            // Channels of several groups are not together, so those of a group stay whole.
            return rule.factor(Kind::Mapped, &[Some(1), Some(0)], Some(1)).counting(self.geometry.groups);
        }
        let rule = rule.factor(Kind::Mapped, &[None, Some(1)], Some(1));
        // The sum over output channels lies inside that over taps: a part of it is a sub-tree where there is one tap.
        match w[2..].iter().product() {
            1 => rule.factor(Kind::Sum, &[Some(1), Some(0)], None).every(self.blocks(w).unit),
            _ => rule.factor(Kind::Whole, &[Some(1), Some(0)], None),
        }
    }

    fn flops(&self, inputs: &[&Type], output: &Type) -> u64 {
        macs(&output.shape, &inputs[1].shape, &inputs[0].shape)
    }
}

impl Operation for ConvWeight {
    fn name(&self) -> &'static str {
        "conv_weight"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let dtype = floats("conv_weight", inputs)?;
        let (x, y) = (&inputs[0].shape, &inputs[1].shape);
        if x.rank() != self.kernel.len() + 2 || y.rank() != x.rank() || !x[1].is_multiple_of(self.geometry.groups) {
            return Err(OpError(format!("conv_weight: input {x} and gradient {y} differ in dims or groups")));
        }
        let mut shape = Shape::new(&[y[1], x[1] / self.geometry.groups]);
        shape.0.extend(self.kernel.iter().copied());
        self.geometry.check("conv_weight", x, &shape, Some(y))?;
        Ok(Type { dtype, shape })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let (x, dy) = (b.inputs[0], b.inputs[1]);
        let size = Spatial::from_slice(&g.ty(x).shape[2..]);
        vec![
            Some(g.add_node(ConvInput::new(self.geometry.clone(), size), &[dy, b.grad])),
            Some(g.add_node(Conv::new(self.geometry.clone()), &[x, b.grad])),
        ]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        // Positions lie inside the blocks of samples, and every tap reads all of them: neither can be split.
        let unit = self.blocks(&inputs[1].shape).unit;
        let rule = SplitRule::whole().factor(Kind::Sum, &[Some(0), Some(0)], None).every(unit);
        if self.geometry.groups > 1 {
            // Channels of several groups are not together, so those of a group stay whole.
            return rule.factor(Kind::Mapped, &[Some(1), Some(1)], Some(0)).counting(self.geometry.groups);
        }
        rule.factor(Kind::Mapped, &[Some(1), None], Some(1)).factor(Kind::Mapped, &[None, Some(1)], Some(0))
    }

    fn flops(&self, inputs: &[&Type], output: &Type) -> u64 {
        macs(&inputs[0].shape, &output.shape, &inputs[1].shape)
    }
}
