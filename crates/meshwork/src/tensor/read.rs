//! Reading values: where recording ends and computing begins.

use super::Tensor;
use super::convert::Element;
use super::evaluate::GONE;
use super::mesh::gather;
use super::node::{Content, State};
use super::planning::is_planning;
use super::still::hold_still;
use meshwork_graph::DType;
use meshwork_runtime::{Value, trace};
use std::fmt;

impl Tensor {
    /// The elements as raw bytes in native order, row-major. Runs what is pending and waits.
    ///
    /// # Panics
    /// At the caller's line with its cause, when the computation failed.
    #[track_caller]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.eval();
        let content = match self.node().state(&hold_still()) {
            State::Ready { content, .. } => content.clone(),
            _ => panic!("{GONE}"),
        };
        match content {
            Content::Scalar(bytes) => bytes[..self.dtype().size()].to_vec(),
            Content::Device(value) => self.contents(&value),
            Content::Mesh(spread) => {
                let parts: Vec<Vec<u8>> = spread.values.iter().map(|value| self.contents(value)).collect();
                gather(&spread, &self.ty().shape, self.dtype().size(), &parts)
            }
        }
    }

    /// Waits for a value of the tensor, or a part of it.
    #[track_caller]
    fn contents(&self, value: &Value) -> Vec<u8> {
        if is_planning() && value.ready().is_never() {
            return vec![0; value.buffer().bytes()];
        }
        let wait = trace::wait(|| format!("the value of {}", self.ty()));
        let outcome = value.ready().wait();
        drop(wait);
        if let Err(e) = outcome {
            panic!("{e}");
        }
        // SAFETY: the event is complete, and buffers that a tensor holds are never overwritten.
        unsafe { value.buffer().contents() }.to_vec()
    }

    /// The elements in row-major order. Runs what is pending and waits.
    ///
    /// # Panics
    /// When `T` is not the tensor's dtype, or the computation failed.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert_eq!(T::DTYPE, self.dtype(), "a tensor of {} cannot be read as {}", self.dtype(), T::DTYPE);
        let bytes = self.to_bytes();
        let mut values = vec![T::default(); self.numel()];
        // SAFETY: both sides have the same number of bytes, and the bytes are elements of this dtype.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast(), bytes.len()) };
        values
    }

    /// The only element of a tensor, of any dtype, as f64.
    ///
    /// # Panics
    /// When there is not exactly one element, or the computation failed.
    #[track_caller]
    pub fn item(&self) -> f64 {
        assert_eq!(self.numel(), 1, "item of a tensor of shape {}", self.ty().shape);
        self.to_f64()[0]
    }

    /// The elements of any dtype as f64, in row-major order.
    #[track_caller]
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype() {
            DType::F64 => self.to_vec::<f64>(),
            DType::F32 => self.to_vec::<f32>().into_iter().map(f64::from).collect(),
            DType::F16 => self.to_vec::<half::f16>().into_iter().map(f64::from).collect(),
            DType::BF16 => self.to_vec::<half::bf16>().into_iter().map(f64::from).collect(),
            DType::I64 => self.to_vec::<i64>().into_iter().map(|v| v as f64).collect(),
            DType::I32 => self.to_vec::<i32>().into_iter().map(f64::from).collect(),
            DType::U8 => self.to_vec::<u8>().into_iter().map(f64::from).collect(),
            DType::Bool => self.to_vec::<bool>().into_iter().map(|v| f64::from(u8::from(v))).collect(),
        }
    }
}

/// Elements shown of each dimension before the middle is left out.
const SHOWN: usize = 6;

impl fmt::Display for Tensor {
    /// The elements in nested brackets, long dimensions abbreviated, then the type. Runs what is pending.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.to_f64();
        write_dim(f, &values, self.shape(), self.dtype())?;
        write!(f, " {}", self.ty())
    }
}

fn write_dim(f: &mut fmt::Formatter<'_>, values: &[f64], shape: &[usize], dtype: DType) -> fmt::Result {
    let Some((&size, rest)) = shape.split_first() else {
        return match dtype {
            DType::Bool => write!(f, "{}", values[0] != 0.0),
            d if d.is_float() => write!(f, "{:.4}", values[0]),
            _ => write!(f, "{}", values[0]),
        };
    };
    let step: usize = rest.iter().product();
    f.write_str("[")?;
    for i in 0..size {
        if size > SHOWN && i == SHOWN / 2 {
            f.write_str(", …")?;
        }
        if size > SHOWN && (SHOWN / 2..size - SHOWN / 2).contains(&i) {
            continue;
        }
        if i > 0 {
            f.write_str(", ")?;
        }
        write_dim(f, &values[i * step..(i + 1) * step], rest, dtype)?;
    }
    f.write_str("]")
}

impl fmt::Debug for Tensor {
    /// The type alone; does not compute anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.ty())
    }
}
