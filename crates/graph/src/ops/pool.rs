//! Average and maximum pooling over windows, and their gradients.

use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::Spatial;
use crate::rule::{Kind, SplitRule};
use crate::shape::{Shape, Type};
use smallvec::SmallVec;

/// The windows along one spatial dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// Windows of one size, `stride` apart.
    Fixed {
        /// Elements of a window.
        kernel: usize,
        /// Distance between windows.
        stride: usize,
        /// Border on both sides, at most half the kernel.
        padding: usize,
        /// Distance between the elements of a window.
        dilation: usize,
        /// Round the number of windows up instead of down.
        ceil: bool,
    },
    /// `output` windows that cover the input as evenly as possible: `⌊i·n/o⌋ .. ⌈(i+1)·n/o⌉`.
    Adaptive {
        /// Number of windows.
        output: usize,
    },
}

impl Window {
    /// Number of windows over `size` elements, or `None` where none fits.
    pub fn output(&self, size: usize) -> Option<usize> {
        match *self {
            Window::Adaptive { output } => Some(output),
            Window::Fixed { kernel, stride, padding, dilation, ceil } => {
                let span = dilation * kernel.checked_sub(1)? + 1;
                let room = (size + 2 * padding).checked_sub(span)?;
                if !ceil {
                    return Some(room / stride + 1);
                }
                let count = room.div_ceil(stride) + 1;
                // A window must start inside the input or its left border.
                Some(if (count - 1) * stride >= size + padding { count - 1 } else { count })
            }
        }
    }

    /// Where the windows over `size` elements lie side by side, each in a run of elements of its own: how many there are.
    fn apart(&self, size: usize) -> Option<usize> {
        match *self {
            Window::Adaptive { output } => (output > 0 && size.is_multiple_of(output)).then_some(output),
            Window::Fixed { kernel, stride, padding, dilation, .. } => {
                let apart = padding == 0 && dilation * (kernel - 1) < stride && size.is_multiple_of(stride);
                apart.then(|| size / stride)
            }
        }
    }

    /// Keeps the windows that lie in a part of a dimension, of `part` elements or windows out of `whole`.
    fn keep(&mut self, part: usize, whole: usize) {
        if let Window::Adaptive { output } = self {
            *output = *output * part / whole.max(1);
        }
    }

    /// Window `i` over `size` elements: its first position (negative inside the border), how many
    /// positions it has, and the distance between them. Positions outside `0..size` are border.
    pub fn span(&self, i: usize, size: usize) -> (isize, usize, usize) {
        match *self {
            Window::Adaptive { output } => {
                let start = i * size / output;
                (start as isize, ((i + 1) * size).div_ceil(output) - start, 1)
            }
            Window::Fixed { kernel, stride, padding, dilation, .. } => {
                ((i * stride) as isize - padding as isize, kernel, dilation)
            }
        }
    }

    /// What a mean over window `i` counts: its positions inside `0..size`, with `border` also those in the border.
    /// What rounding up adds beyond the border never counts (as in PyTorch).
    pub fn count(&self, i: usize, size: usize, border: bool) -> usize {
        let (start, length, step) = self.span(i, size);
        let reach = match *self {
            Window::Fixed { padding, .. } if border => padding,
            _ => 0,
        } as isize;
        let counts = |k: &usize| (-reach..size as isize + reach).contains(&(start + (k * step) as isize));
        (0..length).filter(counts).count()
    }
}

/// The windows of every spatial dimension.
pub type Windows = SmallVec<[Window; 3]>;

/// The mean of every window: `[N, C, …] -> [N, C, …]`. Terms are added in row-major order from +0, then divided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AvgPool {
    /// The windows.
    pub windows: Windows,
    /// Divide by the whole window even where it reaches over the border: see [`Window::count`].
    pub count_include_pad: bool,
}

/// Gradient of [`AvgPool`]: `dy -> dx`. Every input position adds, from +0, `dy / count` of the windows that
/// contain it, in row-major order of the windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AvgPoolInput {
    /// The forward operation.
    pub pool: AvgPool,
    /// Spatial sizes of the result.
    pub size: Spatial,
}

/// `(x, v) -> y`: in every window the element of `v` where `x` has its maximum (the first one; NaN counts as
/// the maximum). Max pooling proper has `v = x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaxPool {
    /// The windows.
    pub windows: Windows,
}

/// Gradient of [`MaxPool`] by `v`: `(x, dy) -> dv`, `dy` added where `x` has the window's maximum, in row-major
/// order of the windows, from +0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaxPoolInput {
    /// The windows.
    pub windows: Windows,
}

fn pooled(name: &str, windows: &[Window], input: &Shape) -> Result<Shape, OpError> {
    if input.rank() != windows.len() + 2 {
        return Err(OpError(format!(
            "{name}: {input} needs {} dims [samples, channels, {} spatial]",
            windows.len() + 2,
            windows.len()
        )));
    }
    let mut shape = Shape::new(&input[..2]);
    for (window, &size) in windows.iter().zip(&input[2..]) {
        if let Window::Fixed { kernel, stride, padding, dilation, .. } = *window
            && (kernel == 0 || stride == 0 || dilation == 0 || 2 * padding > kernel)
        {
            return Err(OpError(format!(
                "{name}: kernel, stride and dilation must be at least 1 and padding at most half the kernel: {window:?}"
            )));
        }
        match window.output(size) {
            Some(n) if size > 0 || n == 0 => shape.0.push(n),
            _ => return Err(OpError(format!("{name}: window {window:?} does not fit in size {size} of {input}"))),
        }
    }
    Ok(shape)
}

/// Keeps the windows that lie in a part of the result, whose shape is `whole`.
pub(crate) fn keep_windows(windows: &mut [Window], part: &[usize], whole: &[usize]) {
    for (d, window) in windows.iter_mut().enumerate() {
        window.keep(part[d + 2], whole[d + 2]);
    }
}

/// The rule of a pooling with so many operands, and of its gradients; `input` is the shape that the windows lie in.
fn pooling_rule(windows: &[Window], input: &Shape, inputs: usize) -> SplitRule {
    // Windows that overlap, reach over the border or leave a rest need their neighbours' positions.
    let mapped = |rule: SplitRule, d| rule.factor(Kind::Mapped, &vec![Some(d); inputs], Some(d));
    let rule = (0..2).fold(SplitRule::whole(), mapped);
    windows.iter().zip(2..).fold(rule, |rule, (window, d)| match window.apart(input[d]) {
        Some(count) => mapped(rule, d).counting(count),
        None => rule,
    })
}

impl Operation for AvgPool {
    fn name(&self) -> &'static str {
        "avg_pool"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        if !inputs[0].dtype.is_float() {
            return Err(OpError(format!("avg_pool: needs a floating-point tensor, not {}", inputs[0])));
        }
        Ok(Type { dtype: inputs[0].dtype, shape: pooled("avg_pool", &self.windows, &inputs[0].shape)? })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let size = Spatial::from_slice(&g.ty(b.inputs[0]).shape[2..]);
        vec![Some(g.add_node(AvgPoolInput { pool: self.clone(), size }, &[b.grad]))]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        pooling_rule(&self.windows, &inputs[0].shape, 1)
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[0].shape.numel() as u64
    }
}

impl Operation for AvgPoolInput {
    fn name(&self) -> &'static str {
        "avg_pool_input"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let dy = inputs[0];
        let mut shape = Shape::new(&dy.shape[..dy.shape.rank().min(2)]);
        shape.0.extend(self.size.iter().copied());
        if pooled("avg_pool_input", &self.pool.windows, &shape)? != dy.shape {
            return Err(OpError(format!("avg_pool_input: gradient {dy} does not belong to input {shape}")));
        }
        Ok(Type { dtype: dy.dtype, shape })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        vec![Some(g.add_node(self.pool.clone(), &[b.grad]))]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        pooling_rule(&self.pool.windows, &output.shape, 1)
    }

    fn flops(&self, _: &[&Type], output: &Type) -> u64 {
        output.shape.numel() as u64
    }
}

impl Operation for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        if inputs[0] != inputs[1] {
            return Err(OpError(format!("max_pool: {} and {} differ", inputs[0], inputs[1])));
        }
        Ok(Type { dtype: inputs[0].dtype, shape: pooled("max_pool", &self.windows, &inputs[0].shape)? })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        // The position of the maximum is locally constant, so only `v` has a gradient.
        let back = MaxPoolInput { windows: self.windows.clone() };
        vec![None, Some(g.add_node(back, &[b.inputs[0], b.grad]))]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        pooling_rule(&self.windows, &inputs[0].shape, 2)
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[0].shape.numel() as u64
    }
}

impl Operation for MaxPoolInput {
    fn name(&self) -> &'static str {
        "max_pool_input"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let (x, dy) = (inputs[0], inputs[1]);
        if pooled("max_pool_input", &self.windows, &x.shape)? != dy.shape || x.dtype != dy.dtype {
            return Err(OpError(format!("max_pool_input: gradient {dy} does not belong to input {x}")));
        }
        Ok(x.clone())
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let forward = MaxPool { windows: self.windows.clone() };
        vec![None, Some(g.add_node(forward, &[b.inputs[0], b.grad]))]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        pooling_rule(&self.windows, &inputs[0].shape, 2)
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[0].shape.numel() as u64
    }
}
