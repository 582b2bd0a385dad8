/* Pelts of snowshoe hares and of lynxes that the Hudson's Bay Company bought, in thousands, from 1900 to 1920: the
 * measured oscillation of a predator and its prey. Source: Hewitt, The Conservation of the Wild Life of Canada (1921),
 * in the form of Howard's tables. */
#ifndef ODE_HARES_H
#define ODE_HARES_H

enum {
    FIRST_YEAR = 1900,
    YEARS = 20 /* after the first one */
};
static const double hares[YEARS + 1] = {30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1,
                                        40.3, 57.0, 76.6, 52.3, 19.5, 11.2, 7.6,  14.6, 16.2, 24.7};
static const double lynxes[YEARS + 1] = {4.0, 6.1,  9.8,  35.2, 59.4, 41.7, 19.0, 13.0, 8.3,  9.1, 7.4,
                                         8.0, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7,  10.1, 8.6};

#endif
