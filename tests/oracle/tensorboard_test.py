"""Reads events back with TensorBoard itself: tensorboard_test.py EVENTS_WRITER. Skipped (77) where Python has no tensorboard."""
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from tensorboard.backend.event_processing import event_accumulator
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

with tempfile.TemporaryDirectory() as directory:
    subprocess.run([sys.argv[1], directory], check=True)
    log = event_accumulator.EventAccumulator(directory, size_guidance=dict.fromkeys(("tensors", "scalars"), 0))
    log.Reload()
    tags = log.Tags()
    print(tags)
    # step 3 of the first run is void: the second one went on after step 2
    loss = [(e.step, e.value) for e in log.Scalars("loss")]
    assert loss == [(1, 2.0), (2, 1.0), (3, 7.0)], loss
    accuracy = [(e.step, np.float32(e.value)) for e in log.Scalars("train/accuracy")]
    assert accuracy == [(1, np.float32(0.1)), (2, np.float32(0.2))], accuracy

    subprocess.run([sys.argv[1], directory + "/whole"], check=True)
    first = sorted(__import__("os").listdir(directory + "/whole"))[0]
    log = event_accumulator.EventAccumulator(directory + "/whole/" + first)
    log.Reload()
    image = log.Images("picture")[0]
    assert (image.step, image.width, image.height) == (3, 4, 5), image
    assert image.encoded_image_string[:8] == b"\x89PNG\r\n\x1a\n"
    try:
        import io

        from PIL import Image

        pixels = np.array(Image.open(io.BytesIO(image.encoded_image_string)))
        assert (pixels == (4 * np.arange(60)).astype(np.uint8).reshape(5, 4, 3)).all()
    except ImportError:
        print("without PIL, pixels are not compared")
    values = ((np.arange(1000) ** 2 % 997).astype(np.float32) / np.float32(100) - np.float32(3)).astype(np.float64)
    histogram = log.Histograms("weights")[0].histogram_value
    counts, edges = np.histogram(values, 30)
    assert (histogram.min, histogram.max, histogram.num) == (values.min(), values.max(), 1000)
    np.testing.assert_allclose([histogram.sum, histogram.sum_squares], [values.sum(), (values**2).sum()], rtol=1e-12)
    np.testing.assert_allclose(histogram.bucket_limit, edges[1:], rtol=1e-12)
    assert np.abs(np.array(histogram.bucket) - counts).sum() <= 2  # a number on an edge may fall on either side of it
print("TensorBoard reads what was written")
