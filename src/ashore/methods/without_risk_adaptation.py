"""Ours without risk adaptation: a run of `risk_adaptive`, deployed at risk level 0. It is never trained a second time.

`ashore evaluate RUN` deploys at level 0, and so does a bundle that was exported without a calibration.
"""

from ashore.methods.base import Method

WITHOUT_RISK_ADAPTATION = Method(
    summary="A run of risk_adaptive, acting at risk level 0 for ever: the latent without the caution.",
    reference="the paper, appendix on ablations (Ours w/o R.A.)",
    differs="nothing: the same trained weights, evaluated at eta = 0",
    instead=(
        "without_risk_adaptation is a run of risk_adaptive at risk level 0 and is not trained on its own: train "
        "risk_adaptive, and evaluate that run or export it --without-calibration."
    ),
)
