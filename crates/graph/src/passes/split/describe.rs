//! What an exchange moves and why, in terms that outlive the graph that was split.

use super::choose::Way;
use super::emit::Emitter;
use crate::canonical::Blocking;
use crate::graph::NodeId;
use crate::mesh::Placements;

/// A reduction that is cut along an axis, so that its parts must be merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CutReduction {
    /// The axis.
    pub axis: String,
    /// The operation that reduces.
    pub op: &'static str,
    /// Whether it sums over samples: a gradient, a loss, a statistic of a batch.
    pub is_over_samples: bool,
}

impl Emitter<'_> {
    /// The name of the operation of a node.
    pub(super) fn name(&self, id: NodeId) -> &'static str {
        self.graph.node(id).op.operation().name()
    }

    /// The first node that needs a value to lie as `to` says.
    pub(super) fn first_user(&self, x: NodeId, to: &Placements) -> Option<NodeId> {
        let needs = |id: &NodeId| {
            let Some(choice) = &self.choices[id.index()] else { return false };
            let operands = self.graph.node(*id).inputs.iter().zip(&choice.operands);
            operands.into_iter().any(|(&input, lies)| input == x && lies == to)
        };
        self.graph.ids().find(needs)
    }

    /// The cut reductions that a value is parts of.
    pub(super) fn cut_reductions(&self, mut id: NodeId) -> Vec<CutReduction> {
        while let Some(choice) = &self.choices[id.index()]
            && choice.ways.iter().any(|way| matches!(way, Way::Partial(_)))
        {
            id = self.graph.node(id).inputs[0];
        }
        let (Some(choice), Some(mesh)) = (&self.choices[id.index()], self.sites.mesh(id)) else { return Vec::new() };
        let node = self.graph.node(id);
        let is_over_samples =
            matches!(node.op.clone().blocking_mut(), Some(Blocking::Samples | Blocking::SamplesOf(_)));
        let cut = choice.ways.iter().zip(&mesh.axes).filter_map(|(way, (axis, _))| match way {
            Way::Factor { factor, .. } if choice.rule.factors[*factor].output.is_none() => Some(axis.clone()),
            _ => None,
        });
        cut.map(|axis| CutReduction { axis, op: self.name(id), is_over_samples }).collect()
    }
}
