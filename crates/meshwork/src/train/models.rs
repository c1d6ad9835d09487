//! Models to begin with.

use super::TrainError;
use crate::Tensor;
use crate::mesh::{Placement, Rule};
use crate::nn::{Conv2d, Layer, Linear, Module};
use meshwork_data::{DataPair, Dataset, Field, FieldType};
use meshwork_graph::canonical::{Blocking, Blocks};

/// Two convolutions and two fully connected layers for 28×28 grey images of 10 classes; 129,068 parameters
/// (LeCun et al., 1998, in the form that tutorials use).
#[derive(Debug, Module)]
pub struct LeNet {
    /// 1 to 20 channels, 3×3.
    pub conv1: Conv2d,
    /// 20 to 50 channels, 5×5.
    pub conv2: Conv2d,
    /// 800 to 128.
    pub fc1: Linear,
    /// 128 to 10.
    pub fc2: Linear,
}

impl LeNet {
    /// The layers, to be initialised by [`Module::init`].
    pub fn new() -> LeNet {
        LeNet {
            conv1: Conv2d::new(1, 20, 3),
            conv2: Conv2d::new(20, 50, 5),
            fc1: Linear::new(800, 128),
            fc2: Linear::new(128, 10),
        }
    }

    /// Images `[N, 1, 28, 28]` to logits `[N, 10]`.
    #[track_caller]
    pub fn forward(&self, images: &Tensor) -> Tensor {
        let x = self.conv1.forward(images).relu().avg_pool2d(2);
        let x = self.conv2.forward(&x).relu().avg_pool2d(2);
        self.fc2.forward(&self.fc1.forward(&x.flatten(1)).relu())
    }
}

/// Two fully connected layers for 28×28 grey images of 10 classes.
#[derive(Debug, Module)]
pub struct Mlp {
    /// 784 to 256.
    pub fc1: Linear,
    /// 256 to 10.
    pub fc2: Linear,
}

impl Mlp {
    /// The layers, to be initialised by [`Module::init`].
    pub fn new() -> Mlp {
        Mlp { fc1: Linear::new(784, 256), fc2: Linear::new(256, 10) }
    }

    /// Images `[N, 1, 28, 28]` to logits `[N, 10]`.
    #[track_caller]
    pub fn forward(&self, images: &Tensor) -> Tensor {
        self.fc2.forward(&self.fc1.forward(&images.flatten(1)).relu())
    }
}

macro_rules! models {
    ($($model:ident)*) => {
        $(
            impl Default for $model {
                fn default() -> Self {
                    $model::new()
                }
            }

            impl Layer for $model {
                #[track_caller]
                fn forward(&self, x: &Tensor) -> Tensor {
                    $model::forward(self, x)
                }
            }
        )*
    };
}

models!(LeNet Mlp);

/// The models that are known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltIn {
    /// [`LeNet`]
    LeNet,
    /// [`Mlp`]
    Mlp,
}

impl BuiltIn {
    /// All of them.
    pub const ALL: [BuiltIn; 2] = [BuiltIn::LeNet, BuiltIn::Mlp];

    /// The shape of one sample.
    pub const INPUT: [usize; 3] = [1, 28, 28];

    /// The number of classes.
    pub const CLASSES: usize = 10;

    /// `lenet` or `mlp`.
    pub fn name(self) -> &'static str {
        match self {
            BuiltIn::LeNet => "lenet",
            BuiltIn::Mlp => "mlp",
        }
    }

    /// Where the parameters are cut along the axis `tensor`: layers by their outputs and by their inputs in turn, so that
    /// what one leaves is what the next one takes (Shoeybi et al., 2019).
    pub fn tensor_plan(self) -> Vec<Rule> {
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
        }
    }

    /// The model of a name.
    pub fn by_name(name: &str) -> Option<BuiltIn> {
        BuiltIn::ALL.into_iter().find(|model| model.name() == name)
    }

    /// A model, to be initialised by [`Module::init`].
    pub fn build(self) -> Box<dyn Layer> {
        match self {
            BuiltIn::LeNet => Box::new(LeNet::new()),
            BuiltIn::Mlp => Box::new(Mlp::new()),
        }
    }

    /// Checks that a data set can be learnt by the model.
    ///
    /// # Errors
    /// [`TrainError::Misfit`] for samples of another shape or type, and for more classes than the model tells apart.
    pub fn check(self, data: &DataPair) -> Result<(), TrainError> {
        let name = self.name();
        let misfit = |problem: String| {
            Err(TrainError::Misfit(format!("the data {:?} does not fit {name}: {problem}", data.name)))
        };
        let shape = format!("{:?}", Self::INPUT);
        match data.train.fields().first() {
            Some(Field { dtype: FieldType::F32, shape, .. }) if *shape == Self::INPUT => {}
            Some(field) => {
                return misfit(format!(
                    "its samples ({:?}) are {:?}{:?}, but the model takes F32{shape}; scale them to that size",
                    field.name, field.dtype, field.shape
                ));
            }
            None => return misfit("its samples have no fields".to_string()),
        }
        match data.train.num_classes() {
            Some(classes) if classes > Self::CLASSES => {
                misfit(format!("it has {classes} classes, but the model tells {} apart", Self::CLASSES))
            }
            _ => Ok(()),
        }
    }
}
