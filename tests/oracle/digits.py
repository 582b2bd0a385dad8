"""Makes examples/digits/images.npy and labels.npy from the digits that come with scikit-learn."""
import os

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
folder = os.path.join(os.path.dirname(__file__), "../../examples/digits")
assert digits.images.shape == (1797, 8, 8) and digits.images.min() == 0 and digits.images.max() == 16
np.save(os.path.join(folder, "images.npy"), digits.images.astype(np.uint8))
np.save(os.path.join(folder, "labels.npy"), digits.target.astype(np.uint8))
