//! The walk over a module: what it meets, and under which name.

use super::{Buffer, Mode, Module, Parameter, RandomSite};

/// What a module holds in the end.
#[derive(Clone, Copy)]
pub enum Leaf<'a> {
    /// A value that is trained.
    Parameter(&'a Parameter),
    /// A value that belongs to the state but is not trained, such as a running mean.
    Buffer(&'a Buffer),
    /// A place that draws random numbers.
    Site(&'a RandomSite),
    /// A switch between training and evaluation.
    Mode(&'a Mode),
}

/// Walks over a module in the order of its fields and knows the path: names joined by dots.
pub struct Visitor<'a> {
    path: String,
    meet: &'a mut dyn FnMut(&str, Leaf<'_>),
}

impl<'a> Visitor<'a> {
    /// A walk that calls `meet` with the path of everything it comes to.
    pub fn new(meet: &'a mut dyn FnMut(&str, Leaf<'_>)) -> Self {
        Visitor { path: String::new(), meet }
    }

    /// Visits a part of the current module.
    pub fn field<M: Module + ?Sized>(&mut self, name: &str, module: &M) {
        let end = self.path.len();
        if end > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        module.visit(self);
        self.path.truncate(end);
    }

    /// Meets what stands at the current path.
    pub fn leaf(&mut self, leaf: Leaf<'_>) {
        (self.meet)(&self.path, leaf);
    }
}
