"""Every remedy, by name. To add one: its file, one line here, and its place on a ladder in `trimtab.agent.policy`."""

from __future__ import annotations

from trimtab.agent.remedies import calibrated_clipping, recomputed_ratio, score_centering
from trimtab.agent.remedy import Remedy

REMEDIES: dict[str, Remedy] = {
    "score_centering": score_centering.propose,
    "recomputed_ratio": recomputed_ratio.propose,
    "calibrated_clipping": calibrated_clipping.propose,
}
