//! What fails on one rank fails everything that is computed from it, with its cause, and nothing else.

use crate::kernels::{boom, boom_at_nan};
use crate::{Net, alone, batch, on, panic_of, spread, train};
use meshwork::mesh::{Mesh, Placement, Plan};
use meshwork::prelude::*;
use meshwork::tensor::{ones, where_};

const PLANS: [&str; 4] = ["data=4", "data=4,zero=3", "data=2,tensor=2,zero=2", "tensor=4,accumulate=2"];

#[test]
fn an_index_out_of_range_in_one_part_of_the_labels_is_named() {
    alone(4, |devices| {
        let expected = train(|x| x.clone(), None, 3);
        for plan in PLANS {
            for sample in [0, 17, 29] {
                let net = Net::new(|x| x.clone());
                let mesh = spread(&net, plan, &devices);
                net.init(4);
                let mut optimizer = optim::AdamW::new(&net, optim::AdamWOptions::default());
                let (x, y) = batch(0);
                let mut labels = y.to_vec::<i64>();
                labels[sample] = 33;
                let loss = net.loss(&on(&(x, Tensor::from_slice(&labels, &[30])), &mesh));
                optimizer.step(net.gradients(&loss));
                let says = "index 33 is out of range for dimension 1 of size 9";
                let text = panic_of(|| loss.item());
                assert!(text.contains(says), "{plan}, sample {sample}: {text}");
                for (name, parameter) in net.named_parameters() {
                    let text = panic_of(|| parameter.value().to_bytes());
                    assert!(text.contains(says), "{name} with {plan}: {text}");
                }
                // The next step fails for the same reason, and hangs nothing.
                let later = net.loss(&on(&batch(1), &mesh));
                optimizer.step(net.gradients(&later));
                assert!(panic_of(|| later.item()).contains(says));
                meshwork::synchronize();
            }
            assert!(train(|x| x.clone(), Some((plan, &devices)), 3) == expected, "{plan} after failures");
        }
    });
}

#[test]
fn a_users_operation_that_fails_on_one_rank_fails_the_others() {
    alone(4, |devices| {
        for plan in PLANS {
            let net = Net::new(boom_at_nan);
            let mesh = spread(&net, plan, &devices);
            net.init(4);
            let (x, y) = batch(0);
            let bad = meshwork::tensor::arange(30, DType::F32).reshape(&[30, 1]).eq(20.0).expand(&[30, 18]);
            let nan = x.zeros_like() / 0.0;
            let spoilt = where_(&bad, &nan, &x);
            let good = net.loss(&on(&(x, y.clone()), &mesh));
            let loss = net.loss(&on(&(spoilt, y), &mesh));
            let gradients = net.gradients(&loss);
            let says = "boom: a rank was given what is not a number";
            assert!(panic_of(|| loss.item()).contains(says));
            for (_, gradient) in gradients.iter() {
                assert!(panic_of(|| gradient.to_bytes()).contains(says));
            }
            assert!(good.item().is_finite());
        }
    });
}

#[test]
fn weights_are_restored_after_a_failure_by_loading_them() {
    alone(4, |devices| {
        let expected = train(|x| x.clone(), None, 5);
        for plan in PLANS {
            let net = Net::new(|x| x.clone());
            let mesh = spread(&net, plan, &devices);
            net.init(4);
            let mut optimizer = optim::AdamW::new(&net, optim::AdamWOptions { lr: 0.01, ..Default::default() });
            let mut saved = None;
            for step in [0, 1, 2, 99, 3, 4] {
                let batch = on(&batch(step), &mesh);
                let loss = net.loss(&batch);
                if step == 99 {
                    let (weights, state) = (Module::state(&net), optimizer.state());
                    optimizer.step(net.gradients(&(&loss * boom(&loss))));
                    assert!(panic_of(|| net.state()).contains("boom, said the user's operation"));
                    saved = Some((weights, state));
                } else {
                    if let Some((weights, state)) = saved.take() {
                        net.load_state(weights).expect("its own weights");
                        optimizer.load_state(state).expect("its own state");
                    }
                    // The loss is of the restored weights.
                    optimizer.step(net.gradients(&net.loss(&batch)));
                }
            }
            assert!(net.state() == expected, "{plan}");
        }
    });
}

#[test]
fn a_mesh_whose_devices_have_gone_away_says_so() {
    alone(4, |devices| {
        let net = Net::new(|x| x.clone());
        let mesh = spread(&net, "data=2,tensor=2", &devices);
        net.init(4);
        let placed = ones(&[6, 4], DType::F32).place(&mesh, &[Placement::split(0), Placement::split(1)]);
        let computed = &placed * 2.0;
        computed.eval();
        meshwork::set_cpu_devices(2).expect("two devices");
        assert_eq!(computed.to_vec::<f32>(), [2.0; 24]);
        let other = ones(&[6, 4], DType::F32);
        let (x, y) = batch(0);
        for text in [
            panic_of(|| &computed + 1.0),
            panic_of(|| &computed + &other),
            panic_of(|| other.place(&mesh, &[Placement::Replicated; 2])),
            panic_of(|| computed.redistribute(&[Placement::Replicated; 2])),
            panic_of(|| computed.to(&Device::cpu(0).expect("a device"))),
            panic_of(|| x.batch_on(&mesh)),
            panic_of(|| net.loss(&(x.clone(), y.clone()))),
            panic_of(|| Net::new(|x| x.clone()).on(&mesh)),
            panic_of(|| Plan::default().apply(&Net::new(|x| x.clone()), &mesh)),
        ] {
            assert!(text.contains("the device has gone away"), "{text}");
        }
        let mesh = Mesh::new([("data", 2)], &Device::cpus().expect("devices")).expect("a mesh");
        assert_eq!((other.batch_on(&mesh) + 1.0).to_vec::<f32>(), [2.0; 24]);
    });
}
