//! Random recorded programs, spread over devices in different ways: equal bits.

use crate::kernels::dawdle;
use crate::numbers::Numbers;
use crate::{allocated, alone};
use meshwork::tensor::{arange, where_};
use meshwork::{DType, Device, Tensor, grad, synchronize, with_default_device};

/// Sizes of rows and columns; a matrix product needs a common one.
const SIZES: [usize; 4] = [1, 3, 8, 21];

/// How a program is run, which must not matter.
struct Layout<'a> {
    devices: &'a [Device],
    /// Whether kernels take their time.
    slow: bool,
    /// Whether values are computed, waited for and kept at random moments.
    restless: bool,
}

struct Recorder<'a> {
    layout: Layout<'a>,
    /// What the program is, equal in all layouts.
    numbers: Numbers,
    /// What may differ.
    noise: Numbers,
    values: Vec<Tensor>,
    variables: Vec<Tensor>,
    held: Vec<Tensor>,
}

impl Recorder<'_> {
    fn device(&mut self) -> Device {
        self.layout.devices[self.numbers.below(60) % self.layout.devices.len()].clone()
    }

    fn leaf(&mut self) -> Tensor {
        let shape = [SIZES[self.numbers.below(4)], SIZES[self.numbers.below(4)]];
        let device = self.device();
        with_default_device(&device, || match self.numbers.below(4) {
            0 => arange(shape[0] * shape[1], DType::F32).reshape(&[shape[0] as isize, -1]) * 0.01,
            1 => meshwork::tensor::full(&shape, 0.75, DType::F32),
            2 => self.numbers.f32s(-1.0, 1.0, &shape).zeros_like() + 0.5,
            _ => self.numbers.f32s(-1.0, 1.0, &shape),
        })
    }

    fn some(&mut self) -> Tensor {
        let reach = if self.numbers.below(2) == 0 { self.values.len() } else { self.values.len().min(4) };
        self.values[self.values.len() - 1 - self.numbers.below(reach)].clone()
    }

    /// One more value, between −1 and 1 or not much beyond: overflows would be a matter of the program, not of devices.
    fn step(&mut self) {
        let device = self.device();
        let (a, b) = (self.some().to(&device), self.some().to(&device));
        let (rows, columns) = (a.shape()[0], a.shape()[1]);
        let whole = [rows as isize, columns as isize];
        let value = match self.numbers.below(22) {
            0 => a.tanh(),
            1 => (a.exp() * 0.5).sin(),
            2 => a.t(),
            3 => a.softmax(1),
            4 => a.sum_keepdim(0).tanh().expand(&whole),
            5 => a.mean_keepdim(1) * &a,
            6 => (a.amax_keepdim(1) - &a).sigmoid(),
            7 => a.narrow(1, columns / 3, columns - columns / 3).pad(&[(0, 0), (0, columns / 3)], 0.25),
            8 => a.flip(&[0]),
            9 => a.dropout(0.3, self.numbers.next() % 1000),
            10 => a.cumsum(0).tanh(),
            11 => where_(&a.gt(0.1), &a, &(&a * 0.5)),
            12 => a.to_dtype(DType::F64).exp().to_dtype(DType::F32).tanh(),
            13 if self.layout.slow => dawdle(&a),
            14 => {
                let positions: Vec<i64> = (0..5).map(|_| self.numbers.below(rows) as i64).collect();
                let index = with_default_device(&device, || Tensor::from_slice(&positions, &[5]));
                a.index_select(0, &index).sum_keepdim(0).tanh().expand(&whole)
            }
            15 => a.zeros_like() + a.ones_like() * 0.3,
            16..20 if a.shape()[1] == b.shape()[0] => (a.matmul(&b) * 0.2).tanh(),
            16..20 if a.shape()[1] == b.shape()[1] => (a.matmul(&b.t()) * 0.2).tanh(),
            _ if a.shape() == b.shape() => (&a * 0.7 + &b * 0.6).tanh() * &b,
            _ => a.sigmoid() * a.sum(..).tanh(),
        };
        self.values.push(value);
    }

    /// Lets a value go for the program, and perhaps for good.
    fn forget(&mut self) {
        let value = self.values.remove(self.numbers.below(self.values.len()));
        if self.layout.restless && self.noise.below(3) == 0 {
            self.held.push(value);
        }
    }

    fn disturb(&mut self) {
        match self.noise.below(24) {
            0 => self.values[self.noise.below(self.values.len())].eval(),
            1 => drop(self.values[self.noise.below(self.values.len())].to_bytes()),
            2 => synchronize(),
            3 => self.held.clear(),
            4 => {
                let of = |noise: &mut Numbers| noise.below(self.layout.devices.len());
                let event = meshwork::record_event(&self.layout.devices[of(&mut self.noise)]);
                self.layout.devices[of(&mut self.noise)].wait_event(&event);
            }
            _ => {}
        }
    }

    fn run(mut self, steps: usize) -> Vec<Vec<u8>> {
        for i in 0..4 {
            let leaf = self.leaf();
            self.values.push(if i < 2 { leaf.variable() } else { leaf });
        }
        self.variables = self.values[..2].to_vec();
        for _ in 0..steps {
            self.step();
            if self.values.len() > 8 && self.numbers.below(3) == 0 {
                self.forget();
            }
            if self.layout.restless {
                self.disturb();
            }
        }
        let home = self.device();
        let add = |sum: Tensor, x: &Tensor| sum + x.to(&home).square().mean(..);
        let zero = with_default_device(&home, || meshwork::tensor::zeros(&[], DType::F32));
        let start = self.variables.iter().fold(zero, add);
        let loss = self.values.iter().fold(start, add);
        let variables: Vec<&Tensor> = self.variables.iter().collect();
        let gradients = grad(&loss, &variables);
        for (gradient, variable) in gradients.iter().zip(&variables) {
            assert_eq!(gradient.device(), variable.device());
        }
        let all = self.values.iter().chain(&gradients).chain([&loss]);
        let bits = all.map(Tensor::to_bytes).collect();
        assert!(loss.item().is_finite());
        bits
    }
}

fn run(seed: u64, steps: usize, noise: u64, layout: Layout) -> Vec<Vec<u8>> {
    let (numbers, noise) = (Numbers::new(seed), Numbers::new(noise));
    let (values, variables, held) = Default::default();
    Recorder { layout, numbers, noise, values, variables, held }.run(steps)
}

#[test]
fn programs_over_devices_have_the_bits_of_one() {
    alone(5, |devices| {
        let before = allocated(&devices);
        for seed in 0..60 {
            let steps = 5 + seed as usize % 40;
            let one = run(seed, steps, 0, Layout { devices: &devices[..1], slow: false, restless: false });
            for count in 1..=5 {
                let layout = Layout { devices: &devices[..count], slow: false, restless: seed % 2 == 1 };
                let many = run(seed, steps, seed ^ count as u64, layout);
                assert!(many == one, "seed {seed}, {count} devices");
            }
        }
        synchronize();
        assert_eq!(allocated(&devices), before, "memory is left behind");
    });
}

#[test]
fn programs_with_slow_kernels_have_the_same_bits() {
    alone(4, |devices| {
        for seed in 1000..1020 {
            let layout = |count: usize, restless| Layout { devices: &devices[..count], slow: true, restless };
            let one = run(seed, 40, 0, layout(1, false));
            for (count, restless) in [(2, true), (3, false), (4, true)] {
                let many = run(seed, 40, seed ^ count as u64, layout(count, restless));
                assert!(many == one, "seed {seed}, {count} devices");
            }
        }
    });
}

/// Threads that record and read on the same devices at the same time do not touch each other's values.
#[test]
fn threads_share_devices() {
    alone(3, |devices| {
        let expected: Vec<_> = (0..4)
            .map(|seed| run(2000 + seed, 30, 0, Layout { devices: &devices[..1], slow: false, restless: false }))
            .collect();
        std::thread::scope(|scope| {
            for (seed, expected) in expected.iter().enumerate() {
                let devices = &devices;
                scope.spawn(move || {
                    for round in 0..6 {
                        let layout = Layout { devices, slow: false, restless: true };
                        assert!(&run(2000 + seed as u64, 30, round, layout) == expected, "seed {seed}");
                    }
                });
            }
        });
    });
}
