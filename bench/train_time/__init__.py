"""The train-time references: checkpoints by counterfactual data augmentation, and with an adversarial head."""
