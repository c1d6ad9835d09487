//! Gradients against central differences in f64, for every differentiable operation, and gradients of gradients.

mod attention;
mod check;
mod elementwise;
mod index;
mod loss;
mod norm;
mod product;
mod reduce;
mod shape;
mod window;
