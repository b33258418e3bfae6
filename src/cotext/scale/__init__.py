"""Translation by engines that spread work over many machines: documents in, documents out.

`Translate` is the stage itself, for any engine that hands out Arrow tables; `translate_dataset` puts it into
a pipeline of Ray Data, and `on_ray` lets a cluster of Ray do what an opened run is asked to translate.
"""

from cotext.scale.ray_data import RayCluster, on_ray, translate_dataset
from cotext.scale.stage import Translate

__all__ = ["RayCluster", "Translate", "on_ray", "translate_dataset"]
