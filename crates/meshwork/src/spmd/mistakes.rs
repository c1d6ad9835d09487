//! Mistakes of hand-written parallel programs, and the types that stop them.
//!
//! Each of these programs is wrong in a way that computes something, and none of them compiles. Beside each stands the
//! program that is right.
//!
//! # The backward pass lacks an all-reduce
//!
//! Each rank computes with its columns of a weight, so each has a part of the gradient of what goes in. A replicated value
//! does not mix with varying ones:
//!
//! ```compile_fail,E0308
//! # use meshwork::spmd::*;
//! fn columns(x: &Dist<Replicated>, weight: &Dist<Varying>) -> Dist<Varying> {
//!     x.linear(weight)
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn columns(x: &Dist<Replicated>, weight: &Dist<Varying>) -> Dist<Varying> {
//!     x.fan_out().linear(weight)
//! }
//! ```
//!
//! # There is an all-reduce in the backward pass only
//!
//! The gradient of a value that is fanned out is added up over the ranks. If all of them compute the same, that counts it
//! as often as there are ranks. A shared loss is no loss:
//!
//! ```compile_fail,E0599
//! # use meshwork::spmd::*;
//! fn gradients(w: &Dist<Replicated>) -> Result<Gradients, CommError> {
//!     w.fan_out().square().sum(..).backward()
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn gradients(w: &Dist<Replicated>) -> Result<Gradients, CommError> {
//!     w.square().sum(..).backward()
//! }
//! ```
//!
//! # Cross entropy of gathered logits
//!
//! The vocabulary is split, the logits are gathered, and every rank computes the same loss. If the gather adds up
//! gradients, as it must where ranks go on in different ways, those of the logits are too large by the number of ranks:
//!
//! ```compile_fail,E0599
//! # use meshwork::spmd::*;
//! fn gradients(logits: &Dist<Varying>, labels: &Dist<Replicated>) -> Result<Gradients, CommError> {
//!     logits.all_gather_shared(1)?.cross_entropy(&labels.constant()).backward()
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn gradients(logits: &Dist<Varying>, labels: &Dist<Replicated>) -> Result<Gradients, CommError> {
//!     logits.all_gather(1)?.cross_entropy(labels).backward()
//! }
//! ```
//!
//! # A partial value is added to a replicated one
//!
//! The bias would be added on every rank, and then once more for each of them by the all-reduce:
//!
//! ```compile_fail,E0369
//! # use meshwork::spmd::*;
//! fn rows(x: &Dist<Varying>, weight: &Dist<Varying>, bias: &Dist<Replicated>) -> Result<Dist<Replicated>, CommError> {
//!     (&x.linear(weight).partial() + bias).all_reduce()
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn rows(x: &Dist<Varying>, weight: &Dist<Varying>, bias: &Dist<Replicated>) -> Result<Dist<Replicated>, CommError> {
//!     Ok(&x.linear(weight).partial().all_reduce()? + bias)
//! }
//! ```
//!
//! # Partial values are added to each other
//!
//! The sum of sums over the ranks is not, bit for bit, the sum over the ranks of sums. One collective does for both:
//!
//! ```compile_fail,E0369
//! # use meshwork::spmd::*;
//! fn sum(a: &Dist<Partial>, b: &Dist<Partial>) -> Result<Dist<Replicated>, CommError> {
//!     (a + b).all_reduce()
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn sum(a: &Dist<Partial>, b: &Dist<Partial>) -> Result<Dist<Replicated>, CommError> {
//!     let sums = all_reduce_together(&[a, b])?;
//!     Ok(&sums[0] + &sums[1])
//! }
//! ```
//!
//! # Something is computed from the parts of a sum
//!
//! ```compile_fail,E0599
//! # use meshwork::spmd::*;
//! fn hidden(product: &Dist<Partial>) -> Result<Dist<Replicated>, CommError> {
//!     product.relu().all_reduce()
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn hidden(product: &Dist<Partial>) -> Result<Dist<Replicated>, CommError> {
//!     Ok(product.all_reduce()?.relu())
//! }
//! ```
//!
//! # There are two all-reduces
//!
//! ```compile_fail,E0599
//! # use meshwork::spmd::*;
//! fn sum(product: &Dist<Partial>) -> Result<Dist<Replicated>, CommError> {
//!     product.all_reduce()?.all_reduce()
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn sum(product: &Dist<Partial>) -> Result<Dist<Replicated>, CommError> {
//!     product.all_reduce()
//! }
//! ```
//!
//! # A part is read as if it were the result
//!
//! ```compile_fail,E0599
//! # use meshwork::spmd::*;
//! fn read(loss: &Dist<Partial>) -> Result<f64, CommError> {
//!     Ok(loss.item())
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn read(loss: &Dist<Partial>) -> Result<f64, CommError> {
//!     Ok(loss.all_reduce()?.item())
//! }
//! ```
//!
//! # Each rank differentiates its own loss
//!
//! ```compile_fail,E0599
//! # use meshwork::spmd::*;
//! fn gradients(own: &Dist<Varying>) -> Result<Gradients, CommError> {
//!     own.sum(..).backward()
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn gradients(own: &Dist<Varying>) -> Result<Gradients, CommError> {
//!     own.sum(..).partial().all_reduce()?.backward()
//! }
//! ```
//!
//! # The optimizer takes partial gradients
//!
//! Each rank would update its copy of the parameter by its own part of the gradient, and the copies would go apart:
//!
//! ```compile_fail,E0308
//! # use meshwork::spmd::*;
//! fn update(w: &Parameter<Replicated>, used: &Dist<Shared>, gradients: &Gradients) -> Update {
//!     Update::new().with(w, &gradients.of(used))
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn update(w: &Parameter<Replicated>, gradients: &Gradients) -> Update {
//!     Update::new().with(w, &gradients.of(&w.value()))
//! }
//! ```
//!
//! # A copy for each rank to use is trained
//!
//! ```compile_fail,E0277
//! # use meshwork::spmd::*;
//! fn parameter(w: &Dist<Replicated>) -> Parameter<Shared> {
//!     Parameter::new(&w.fan_out())
//! }
//! ```
//!
//! ```
//! # use meshwork::spmd::*;
//! fn parameter(w: &Dist<Replicated>) -> Parameter<Replicated> {
//!     Parameter::new(w)
//! }
//! ```
