//! The models that are known by name.

use super::{LeNet, Mlp, TrainError};
use crate::DType;
use crate::mesh::{Placement, Rule};
use crate::nn::{Layer, Transformer, TransformerConfig};
use meshwork_data::{DataPair, Dataset, Field, FieldType};
use meshwork_graph::canonical::{Blocking, Blocks};

/// A model that is known by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BuiltIn {
    /// [`LeNet`]
    LeNet,
    /// [`Mlp`]
    Mlp,
    /// [`Transformer`] in the style of GPT-2
    Gpt(TransformerConfig),
    /// [`Transformer`] in the style of Llama
    Llama(TransformerConfig),
}

impl BuiltIn {
    /// `lenet`, `mlp`, `gpt` or `llama`.
    pub fn name(&self) -> &'static str {
        match self {
            BuiltIn::LeNet => "lenet",
            BuiltIn::Mlp => "mlp",
            BuiltIn::Gpt(_) => "gpt",
            BuiltIn::Llama(_) => "llama",
        }
    }

    /// What a transformer is made of.
    pub fn transformer(&self) -> Option<&TransformerConfig> {
        match self {
            BuiltIn::Gpt(config) | BuiltIn::Llama(config) => Some(config),
            BuiltIn::LeNet | BuiltIn::Mlp => None,
        }
    }

    /// Element type and shape of one sample: f32 images, or i64 tokens.
    pub fn input(&self) -> (DType, Vec<usize>) {
        match self.transformer() {
            Some(config) => (DType::I64, vec![config.context]),
            None => (DType::F32, vec![1, 28, 28]),
        }
    }

    /// The shape of the classes of one sample: one, or one for each token.
    pub fn labels(&self) -> Vec<usize> {
        self.transformer().map(|config| config.context).into_iter().collect()
    }

    /// The number of classes, or of tokens.
    pub fn classes(&self) -> usize {
        self.transformer().map_or(10, |config| config.vocabulary)
    }

    /// Where the parameters are cut along the axis `tensor`: layers by their outputs and by their inputs in turn, so that
    /// what one leaves is what the next one takes (Shoeybi et al., 2019).
    pub fn tensor_plan(&self) -> Vec<Rule> {
        let cut = |name: &str, placement: Placement| Rule::new(name, [("tensor", placement)]);
        let split = Placement::split;
        let fully_connected = [cut("fc1.weight", split(0)), cut("fc1.bias", split(0)), cut("fc2.weight", split(1))];
        match self {
            BuiltIn::LeNet => {
                // Between channels where the next layer's sums over them are cut.
                let unit = Blocks::contraction(Blocking::Features, 20, 5 * 5).unit;
                let channels = Placement::Split { dim: 0, unit };
                let convolutions =
                    [cut("conv1.weight", channels), cut("conv1.bias", channels), cut("conv2.weight", split(1))];
                convolutions.into_iter().chain(fully_connected).collect()
            }
            BuiltIn::Mlp => fully_connected.into(),
            BuiltIn::Gpt(config) | BuiltIn::Llama(config) => config.tensor_plan(),
        }
    }

    /// A model, to be initialised by [`Module::init`](crate::nn::Module::init).
    pub fn build(&self) -> Box<dyn Layer> {
        match *self {
            BuiltIn::LeNet => Box::new(LeNet::new()),
            BuiltIn::Mlp => Box::new(Mlp::new()),
            BuiltIn::Gpt(config) | BuiltIn::Llama(config) => Box::new(Transformer::new(config)),
        }
    }

    /// Checks that a data set can be learnt by the model.
    ///
    /// # Errors
    /// [`TrainError::Misfit`] for samples of another shape or type, and for more classes than the model tells apart.
    pub fn check(&self, data: &DataPair) -> Result<(), TrainError> {
        let name = self.name();
        let misfit = |problem: String| {
            Err(TrainError::Misfit(format!("the data {:?} does not fit {name}: {problem}", data.name)))
        };
        let (dtype, shape) = self.input();
        let wanted = if dtype == DType::F32 { FieldType::F32 } else { FieldType::I64 };
        match data.train.fields().first() {
            Some(field) if field.dtype == wanted && field.shape == shape => {}
            Some(Field { name: field, dtype, shape: given }) => {
                let hint = if wanted == FieldType::F32 { "; scale them to that size" } else { "" };
                return misfit(format!(
                    "its samples ({field:?}) are {dtype:?}{given:?}, but the model takes {wanted:?}{shape:?}{hint}"
                ));
            }
            None => return misfit("its samples have no fields".to_string()),
        }
        match data.train.num_classes() {
            Some(classes) if classes > self.classes() => {
                misfit(format!("it has {classes} classes, but the model tells {} apart", self.classes()))
            }
            _ => Ok(()),
        }
    }
}
