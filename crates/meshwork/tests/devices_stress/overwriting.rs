//! Values that are updated in place while other devices still copy the old ones.

use crate::alone;
use crate::kernels::late;
use crate::numbers::Numbers;
use meshwork::tensor::{full, last_plan};
use meshwork::{DType, Tensor, record_event, with_default_device};

#[test]
fn a_copy_has_the_value_of_before_an_update() {
    alone(4, |devices| {
        let mut numbers = Numbers::new(3);
        let mut in_place = 0;
        for round in 0..10 {
            let mut weight = with_default_device(&devices[1], || full(&[10_000], 0.0, DType::F32));
            weight.eval();
            let mut seen = Vec::new();
            for step in 0..12u32 {
                // Copies are held up, one after the other.
                let gate = with_default_device(&devices[0], || late(&full(&[1], 0.0, DType::F32), 1 + round % 3));
                let event = record_event(&devices[0]);
                let reader = &devices[[2, 3][numbers.below(2)]];
                reader.wait_event(&event);
                let copy = weight.to(reader);
                copy.eval();
                seen.push((f64::from(step), copy, gate));
                weight = &weight + 1.0;
                weight.eval();
                let plan = last_plan().expect("it ran");
                in_place += plan.programs().filter(|p| p.outputs.iter().any(|o| o.donated.is_some())).count();
            }
            for (value, copy, _) in seen {
                assert!(copy.to_f64().iter().all(|&x| x == value), "a copy of {value} is {copy}");
            }
            assert_eq!(weight.to_f64()[9_999], 12.0);
        }
        assert!(in_place >= 100, "only {in_place} of 120 updates are in place");
    });
}

/// Two devices that update in turn what they have from each other.
#[test]
fn weights_go_back_and_forth() {
    alone(2, |devices| {
        let start: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        let mut weight = Tensor::from_slice(&start, &[5000]);
        let mut old = Vec::new();
        for step in 0..60 {
            let there = weight.to(&devices[1 - step % 2]);
            if step % 7 == 0 {
                old.push((step, weight.clone()));
            }
            weight = there * 0.5 + 1.0;
            if step % 3 == 0 {
                weight.eval();
            }
        }
        let expected = |steps| start.iter().map(|&x| (0..steps).fold(x, |x, _| x * 0.5 + 1.0)).collect::<Vec<f32>>();
        assert_eq!(weight.to_vec::<f32>(), expected(60));
        for (step, value) in old {
            assert_eq!(value.to_vec::<f32>(), expected(step));
        }
    });
}
