//! Data parallelism by hand: a batch is scattered over devices, and what each of them computed is added up.
//!
//! Every device has the parameters, computes the loss of its part of the batch (the *sum* over its samples) and the
//! gradients of that; [`all_reduce`] makes of the partial gradients those of the whole batch, on each device, and every
//! device updates its parameters. A tensor that comes from [`scatter`] knows which part of which batch it is, and so
//! does what is computed from it: sums over samples use the blocks of the whole batch, and [`all_reduce`] continues the
//! tree of these sums. So the result has the bits of one device.
//!
//! ```
//! use meshwork::parallel::{all_reduce, split_batch};
//! use meshwork::prelude::*;
//! use meshwork::tensor::randn;
//!
//! meshwork::set_cpu_devices(2)?;
//! let devices = Device::cpus()?;
//! let (x, y, w) = (randn(&[8, 3]), randn(&[8, 1]), randn(&[1, 3]));
//! let weights: Vec<Tensor> = devices.iter().map(|device| w.to(device).variable()).collect();
//! let mut gradients = Vec::new();
//! for shard in split_batch(&x, &y, &devices) {
//!     let w = &weights[shard.device];
//!     let loss = (shard.x.linear(w, None) - &shard.y).square().sum(..);
//!     gradients.push(grad(&loss, &[w]).remove(0));
//! }
//! all_reduce(&mut gradients);
//!
//! let w = w.variable();
//! let whole = grad(&(x.linear(&w, None) - &y).square().sum(..), &[&w]).remove(0);
//! assert_eq!(gradients[0].to_bytes(), whole.to_bytes());
//! # Ok::<(), meshwork::DeviceError>(())
//! ```
//!
//! What adds several sums over the batch (the gradient of a parameter that is used twice in a model) is a sum of its own
//! kind: add up each of them before they are added to each other, or the last bits may differ from those of one device.
//! The same goes for f16 and bf16, whose sums are rounded at the end of each part.

mod all_reduce;
mod scatter;

pub use all_reduce::all_reduce;
pub use scatter::{Piece, Shard, scatter, scatter_weighted, split_batch, split_batch_weighted};
